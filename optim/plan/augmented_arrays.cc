#include "optim/plan/augmented_arrays.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// How the samples of a feed are pictures: by their own shape, which a row has not, by that of the input, or a square.
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

// Rather pixels than floats, and rather with channels than without.
int Likelihood(const Column& column) { return (column.image ? 2 : 0) + (column.sample.rank() == 3 ? 1 : 0); }

bool HaveOneLayout(const PixelLayout& a, const PixelLayout& b) {
  return a.SameSize(b) && (a.channels == 1 || b.channels == 1 || a.channels_last == b.channels_last);
}

// All pictures of the size of the likeliest ones.
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

// Labels for each pixel: [h, w], [k, h, w] or [h, w, k].
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
