#include "optim/plan/image_plan.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxSide = 1 << 14;

struct Size {
  int64_t height = 0, width = 0;  // 0: open
};

absl::StatusOr<Size> ParseImageSize(const std::string& text) {
  const size_t by = text.find('x');
  const auto height = ParseInt(text.substr(0, by));
  const auto width = by == std::string::npos ? height : ParseInt(text.substr(by + 1));
  if (!height.ok() || !width.ok() || *height < 1 || *width < 1 || *height > kMaxSide || *width > kMaxSide)
    return Invalid("`image_size`: expected N or HEIGHTxWIDTH of 1 to ", kMaxSide, " pixels, got '", text, "'");
  return Size{*height, *width};
}

bool AreChannels(int64_t extent) { return extent == 1 || extent == 3; }

// One sample of an input as a picture; extents of 0 are open.
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
    return Plan{{open(d[0]), open(d[1])}, 0, true};  // the channels are open, and not in front
  }
  if (last) return Plan{{open(d[0]), open(d[1])}, open(channels), true};
  return Plan{{open(d[1]), open(d[2])}, open(channels), false};
}

// A row of pixels: of a square, unless a size is asked for.
std::optional<Plan> PlanRow(int64_t pixels, const Size& asked) {
  for (const int64_t channels : {1, 3}) {
    const int64_t side = std::llround(std::sqrt(double(pixels) / channels));
    const Size size = asked.height > 0 ? asked : Size{side, side};
    if (pixels > 0 && size.height * size.width * channels == pixels) return Plan{size, channels, false};
  }
  return std::nullopt;
}

// nullopt: no pictures fit that input.
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
  const bool width = fill(&plan->size.width, asked.width, before.width);
  if (height && width) return absl::OkStatus();
  return Invalid("`image_size` ", asked.height, "x", asked.width, ": input '", input, "' takes pictures of ",
                 declared.height, " × ", declared.width);
}

absl::Status KeepSizes(const TrainConfig& config, const std::string& input, int64_t multiple, ImageOptions* options) {
  const char* how = options->augment.crop_max > 0 ? "`augment` crop"
                    : options->augment.mixes()    ? "`augment` mixup and cutmix"
                    : config.decode_scaling       ? "`decode_scaling`"
                                                  : nullptr;
  if (how != nullptr)
    return Invalid(how, ": only with pictures of one size, which input '", input, "' leaves open (`image_size` N)");
  options->sizes = PictureSizes{.input = input, .multiple = multiple};
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
    const bool open = plan->size.height == 0 && plan->size.width == 0;
    if (open && input.dims.size() == 4 && config.resize.empty())
      RETURN_IF_ERROR(KeepSizes(config, input.name, known.size_multiple, &options));
    if (plan->size.height == 0 || plan->size.width == 0) return options;
    options.height = static_cast<int>(plan->size.height);
    options.width = static_cast<int>(plan->size.width);
    return options;
  }
  return options;
}

PicturePreprocess DescribeImages(const ImageOptions& o, int64_t size_multiple,
                                 const std::vector<FolderColumn>& folders) {
  PicturePreprocess p{.height = o.height,
                      .width = o.width,
                      .channels = o.channels,
                      .size_multiple = size_multiple,
                      .layout = o.channels_last ? "nhwc" : "nchw",
                      .resize = FitName(o.fit),
                      .channel_order = o.bgr ? "bgr" : "rgb"};
  for (const FolderColumn& f : folders) p.folders.push_back({f.name, f.folder, f.kind == PictureKind::kMask});
  return p;
}

bool FeedsPictures(const BoundData& data) {
  return std::ranges::any_of(data.feeds, [&](const FeedSpec& feed) {
    return !feed.columns.empty() && data.dataset->columns()[feed.columns[0]].picture;
  });
}

absl::Status CheckPictureFields(const TrainConfig& config, const std::string& path, bool feeds_pictures) {
  for (const char* field : {"image_size", "resize", "channel_order", "decode_scaling"}) {
    if (!feeds_pictures && IsSpecified(config, field))
      return Invalid("`", field, "`: has no effect: ", path, " feeds no files of pictures");
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
