#include "optim/plan/open_data.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/processor_config.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxSide = 1 << 14;

struct Size {
  int64_t height = 0, width = 0;  // 0: open
  bool any_width = false;         // the width follows from the height
};

absl::StatusOr<Size> ParseImageSize(const std::string& text) {
  const size_t by = text.find('x');
  const bool any_width = by != std::string::npos && text.substr(by + 1) == "auto";
  const auto height = ParseInt(text.substr(0, by));
  const auto width = by == std::string::npos || any_width ? height : ParseInt(text.substr(by + 1));
  if (!height.ok() || !width.ok() || *height < 1 || *width < 1 || *height > kMaxSide || *width > kMaxSide)
    return Invalid("`image_size`: expected N, HEIGHTxWIDTH or HEIGHTxauto of 1 to ", kMaxSide, " pixels, got '", text,
                   "'");
  return Size{*height, any_width ? 0 : *width, any_width};
}

}  // namespace

std::vector<int64_t> ListLineHeights(const TrainConfig& config, int64_t known) {
  if (const auto asked = ParseImageSize(config.image_size); asked.ok()) return {asked->height};
  std::vector<int64_t> heights = {48, 32, 64};
  if (known > 0) heights.insert(heights.begin(), known);
  return heights;
}

namespace {

bool AreChannels(int64_t extent) { return extent == 1 || extent == 3; }

// The shape of one sample of an input as a picture; extents of 0 are open.
struct Plan {
  Size size;
  int64_t channels = 0;
  bool channels_last = false;
};

std::optional<Plan> PlanRank3(const Shape& d) {
  const auto open = [](int64_t extent) { return std::max<int64_t>(extent, 0); };
  const bool last = AreChannels(d[2]) && !AreChannels(d[0]);
  const int64_t channels = last ? d[2] : d[0];
  if (channels >= 0 && !AreChannels(channels)) {
    if (d[2] >= 0) return std::nullopt;
    return Plan{{open(d[0]), open(d[1])}, 0, true};  // channels last, their number open
  }
  if (last) return Plan{{open(d[0]), open(d[1])}, open(channels), true};
  return Plan{{open(d[1]), open(d[2])}, open(channels), false};
}

// Plans a flat row of pixels as a square picture, unless the configuration sets a size.
std::optional<Plan> PlanRow(int64_t pixels, const Size& asked) {
  for (const int64_t channels : {1, 3}) {
    const int64_t side = std::llround(std::sqrt(double(pixels) / channels));
    const Size size = asked.height > 0 ? asked : Size{side, side};
    if (pixels > 0 && size.height * size.width * channels == pixels) return Plan{size, channels, false};
  }
  return std::nullopt;
}

// Returns nullopt if pictures cannot feed the input.
std::optional<Plan> PlanInput(const ModelInput& input, const std::map<std::string, int64_t>& named, const Size& asked) {
  Shape d;
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const auto it = i < input.dim_names.size() ? named.find(input.dim_names[i]) : named.end();
    d.push_back(input.dims[i] < 0 && it != named.end() ? it->second : input.dims[i]);
  }
  if (!input.has_shape || !(IsFloat(input.dtype) || input.dtype == DType::kUInt8)) return std::nullopt;
  if (d.size() == 3) return PlanRank3(d);
  if (d.size() == 2) return Plan{{std::max<int64_t>(d[0], 0), std::max<int64_t>(d[1], 0)}, 1, false};
  return d.size() == 1 ? PlanRow(d[0], asked) : std::nullopt;
}

absl::Status FillSize(const std::string& input, const Size& asked, const Size& before, Plan* plan) {
  const auto fill = [&](int64_t* extent, int64_t wanted, int64_t earlier) {
    if (*extent == 0) *extent = wanted > 0 ? wanted : earlier;
    return wanted == 0 || *extent == wanted;
  };
  const Size declared = plan->size;
  const bool height = fill(&plan->size.height, asked.height, before.height);
  const bool width = fill(&plan->size.width, asked.width, asked.any_width ? 0 : before.width);
  if (height && width && (!asked.any_width || declared.width == 0)) return absl::OkStatus();
  return Invalid("`image_size` ", asked.height, "x", asked.any_width ? "auto" : StrCat(asked.width), ": input '", input,
                 "' takes pictures of ", declared.height, " × ", declared.width);
}

absl::Status KeepSizes(const TrainConfig& config, const PictureSizes& sizes, ImageOptions* options) {
  const char* how = options->augment.crop_max > 0 ? "`augment` crop"
                    : options->augment.mixes()    ? "`augment` mixup and cutmix"
                    : config.decode_scaling       ? "`decode_scaling`"
                                                  : nullptr;
  if (how != nullptr)
    return Invalid(how, ": only with pictures of one size, which input '", sizes.input,
                   "' leaves open (`image_size` N)");
  options->sizes = sizes;
  return absl::OkStatus();
}

ImageFit ParseFit(const std::string& text) {
  return text == "stretch" ? ImageFit::kStretch : text == "pad" ? ImageFit::kPad : ImageFit::kCrop;
}

const char* FitName(ImageFit fit) {
  return fit == ImageFit::kStretch ? "stretch" : fit == ImageFit::kPad ? "pad" : "crop";
}

}  // namespace

absl::StatusOr<ImageOptions> PlanImages(const TrainConfig& config, const std::vector<ModelInput>& inputs,
                                        const std::map<std::string, int64_t>& dims,
                                        const std::optional<Preprocess>& before) {
  const PicturePreprocess known =
      before.has_value() ? before->pictures.value_or(PicturePreprocess()) : PicturePreprocess();
  auto augment = ParseAugmentation(config.augment);
  if (!augment.ok()) return Annotate(augment.status(), "`augment`: ");
  Size asked;
  if (!config.image_size.empty()) {
    ASSIGN_OR_RETURN(asked, ParseImageSize(config.image_size));
  }
  ImageOptions options{.bgr = (config.channel_order.empty() ? known.channel_order : config.channel_order) == "bgr",
                       .fit = ParseFit(config.resize.empty() ? known.resize : config.resize),
                       .filter = FindFilter(known.resample).value_or(Filter::kBilinear),
                       .decode_scaling = config.decode_scaling,
                       .augment = *augment,
                       .problem = "none of the model's inputs takes pictures",
                       .wanted = false};
  for (const ModelInput& input : inputs) {
    std::optional<Plan> plan = PlanInput(input, dims, asked);
    if (!plan.has_value()) continue;
    options.wanted = true;
    RETURN_IF_ERROR(FillSize(input.name, asked, {known.height, known.width}, &*plan));
    options.channels = static_cast<int>(plan->channels > 0 ? plan->channels : known.channels > 0 ? known.channels : 3);
    options.channels_last = plan->channels_last;
    options.problem = StrCat("input '", input.name, "' leaves the size of pictures open; `image_size` N sets it");
    const Size& size = plan->size;
    if (size.width == 0 && input.dims.size() == 4 && config.resize.empty())
      RETURN_IF_ERROR(
          KeepSizes(config, {.input = input.name, .height = size.height, .multiple = known.size_multiple}, &options));
    if (plan->size.height == 0 || plan->size.width == 0) return options;
    options.height = static_cast<int>(plan->size.height);
    options.width = static_cast<int>(plan->size.width);
    return options;
  }
  return options;
}

PicturePreprocess DescribeImages(const ImageOptions& o, int64_t size_multiple,
                                 const std::vector<FolderColumn>& folders) {
  PicturePreprocess p{.height = o.sizes.has_value() ? o.sizes->height : o.height,
                      .width = o.width,
                      .channels = o.channels,
                      .size_multiple = size_multiple,
                      .layout = o.channels_last ? "nhwc" : "nchw",
                      .resize = FitName(o.fit),
                      .channel_order = o.bgr ? "bgr" : "rgb",
                      .resample = FilterName(o.filter)};
  for (const FolderColumn& f : folders) p.folders.push_back({f.name, f.folder, f.kind == PictureKind::kMask});
  return p;
}

bool FeedsPictures(const BoundData& data) {
  return std::ranges::any_of(data.feeds, [&](const FeedSpec& feed) {
    return !feed.columns.empty() && data.dataset->columns()[feed.columns[0]].picture;
  });
}

namespace {

// Returns the pixel layout of a feed's samples: from their own shape, or, if they are rows, from the shape of the
// input, or a square.
std::optional<PixelLayout> FindLayout(const FeedSpec& feed, const Dataset& data) {
  if (feed.columns.size() != 1) return std::nullopt;
  const Column& column = data.columns()[feed.columns[0]];
  const DType type = column.sample.dtype;
  const bool pixels = type == DType::kUInt8 || (type != DType::kBool && IsFloat(feed.sample.dtype));
  if (!pixels || column.variable || column.height_axis >= 0 || column.sample_rate > 0 || !column.problem.empty())
    return std::nullopt;
  const auto own = FindPixelLayout(column.sample.shape);
  if (own.has_value() && column.sample.rank() > 1) return own;
  const bool same = column.sample.elements() == feed.sample.elements();
  const auto input = same ? FindPixelLayout(feed.sample.shape) : std::nullopt;
  return input.has_value() ? input : own;
}

// Prefers image columns to other floats, and samples with channels to those without.
int Likelihood(const Column& column) { return (column.image ? 2 : 0) + (column.sample.rank() == 3 ? 1 : 0); }

bool HaveOneLayout(const PixelLayout& a, const PixelLayout& b) {
  return a.SameSize(b) && (a.channels == 1 || b.channels == 1 || a.channels_last == b.channels_last);
}

// Returns all pictures of the size of the most likely ones.
std::vector<ArrayPictures> FindPictures(const BoundData& data) {
  std::vector<ArrayPictures> found;
  std::optional<ArrayPictures> likeliest;
  const auto& columns = data.dataset->columns();
  for (const FeedSpec& feed : data.feeds) {
    const auto layout = FindLayout(feed, *data.dataset);
    if (!layout.has_value()) continue;
    found.push_back({.column = feed.columns[0], .layout = *layout});
    if (!likeliest || Likelihood(columns[found.back().column]) > Likelihood(columns[likeliest->column]))
      likeliest = found.back();
  }
  std::erase_if(found, [&](const ArrayPictures& p) { return !HaveOneLayout(p.layout, likeliest->layout); });
  return found;
}

// Returns the layout of labels per pixel: [h, w], [k, h, w] or [h, w, k].
std::optional<PixelLayout> FindLabelLayout(const Shape& s, const PixelLayout& picture) {
  PixelLayout layout{.height = picture.height, .width = picture.width};
  const auto has_size = [&](size_t axis) { return s[axis] == picture.height && s[axis + 1] == picture.width; };
  if (s.size() == 2 && has_size(0)) return layout;
  if (s.size() != 3 || (!has_size(0) && !has_size(1))) return std::nullopt;
  layout.channels_last = !has_size(1);
  layout.channels = static_cast<int>(layout.channels_last ? s[2] : s[0]);
  return layout;
}

bool ChangesGeometry(const Augmentation& a) {
  return a.crop_max > 0 || a.flip > 0 || a.vertical_flip > 0 || a.rotate > 0 || a.randaugment > 0;
}

absl::Status AddLabels(const BoundLabel& label, const Dataset& data, std::vector<ArrayPictures>* pictures) {
  for (const int c : label.columns) {
    const Column& column = data.columns()[c];
    if (column.sample.rank() < 2 || std::ranges::count(*pictures, c, &ArrayPictures::column) > 0) continue;
    const PixelLayout& picture = pictures->front().layout;
    const auto layout = FindLabelLayout(column.sample.shape, picture);
    if (!layout.has_value())
      return Invalid("labels '", column.name, "' ", ToString(column.sample), " are not changed like pictures of ",
                     picture.height, " × ", picture.width, " (only color and erase leave them as they are)");
    pictures->push_back({.column = c, .layout = *layout, .label = true});
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const Augmentation& augmentation, const Dataset& data,
                        const std::vector<ArrayPictures>& pictures) {
  for (const ArrayPictures& p : pictures) {
    const Column& column = data.columns()[p.column];
    if (!CanAugment(augmentation, column.sample.dtype))
      return Invalid("color and randaugment need pixels of uint8, whose range is known; '", column.name, "' holds ",
                     ToString(column.sample.dtype));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<AugmentedArrays>> AugmentBoundArrays(const TrainConfig& config, const std::string& path,
                                                                  BoundData* data) {
  ASSIGN_OR_RETURN(const Augmentation augmentation, ParseAugmentation(config.augment));
  if (config.augment.empty()) return std::nullopt;
  std::vector<ArrayPictures> pictures = FindPictures(*data);
  if (pictures.empty()) return std::nullopt;
  const std::string where = StrCat("`augment`: ", path, ": ");
  RETURN_IF_ERROR(Annotate(CheckTypes(augmentation, *data->dataset, pictures), where));
  AugmentedArrays augmented{.layout = pictures[0].layout};
  for (const ArrayPictures& p : pictures) {
    augmented.columns.push_back(p.column);
    augmented.layout.channels_last |= p.layout.channels_last;
  }
  if (!augmentation.changes_pictures()) return augmented;
  if (ChangesGeometry(augmentation)) {
    RETURN_IF_ERROR(Annotate(AddLabels(data->label, *data->dataset, &pictures), where));
    for (const auto& [key, label] : data->own_labels)
      RETURN_IF_ERROR(Annotate(AddLabels(label, *data->dataset, &pictures), where));
  }
  for (const ArrayPictures& p : pictures)
    data->notes.push_back(StrCat("`augment` changes ", p.label ? "labels" : "pictures", " '",
                                 data->dataset->columns()[p.column].name, "' of ", p.layout.height, " × ",
                                 p.layout.width));
  data->dataset = AugmentArrays(data->dataset, augmentation, pictures);
  return augmented;
}

}  // namespace onnxtrain
