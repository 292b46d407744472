// What pictures become: samples of one shape, or of as many as there are sizes of pictures.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/cache_budget.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Random changes of training pictures.

// Zeros change nothing.
struct Augmentation {
  double crop_min = 0, crop_max = 0;   // a part of this share of the area, resized
  double flip = 0, vertical_flip = 0;  // probabilities
  double rotate = 0;                   // by up to so many degrees
  double color = 0;                    // brightness, contrast and saturation times 1 ± this
  int randaugment = 0, magnitude = 9;  // so many random operations, of a strength out of 30
  double erase = 0;                    // probability that a rectangle becomes black
  double mixup = 0, cutmix = 0;        // as MixOptions (batch_mix.h), which applies them

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool changes_pictures() const {
    return crop_max > 0 || flip > 0 || vertical_flip > 0 || rotate > 0 || color > 0 || randaugment > 0 || erase > 0;
  }
  bool operator==(const Augmentation&) const = default;
};

// Parses crop[:MIN[-MAX]], flip[:P], vflip[:P], rotate:DEGREES, color[:X], randaugment[:N[/M]] and
// erase[:P], mixup[:ALPHA], cutmix[:ALPHA]. Errors name the part.
absl::StatusOr<Augmentation> ParseAugmentation(std::span<const std::string> parts);

// How a picture of other proportions fills the sample.
enum class ImageFit : uint8_t {
  kStretch,  // changes the proportions
  kCrop,     // the largest part of these proportions, around the center
  kPad       // the whole picture, with black bars
};

// Pictures that keep their sizes.
struct PictureSizes {
  std::string input;  // of the model
  // That the sizes are padded to. 0: found by `find_multiple`, or a power of two times that, where the pictures come to
  // too many sizes otherwise.
  int64_t multiple = 0;
  // Returns the least multiple that the model takes; fails where it takes one size only.
  std::function<absl::StatusOr<int64_t>()> find_multiple = {};
};

struct ImageOptions {
  int width = 0, height = 0;  // 0: not known, see `problem`, unless `sizes` are kept
  std::optional<PictureSizes> sizes = {};
  int channels = 3;  // 1 or 3
  bool channels_last = false;
  bool bgr = false;  // blue before red
  ImageFit fit = ImageFit::kCrop;
  bool decode_scaling = false;  // a JPEG may be decoded at a half, a quarter or an eighth where that is large enough
  Augmentation augment = {};    // of training samples
  // Keeps decoded pictures where augmentation cuts another part every time; null: keeps none.
  std::shared_ptr<CacheBudget> cache = nullptr;
  std::string problem = "";  // why there is no size, for people
  bool wanted = true;        // false: the model takes no pictures, and sources that hold more leave them out

  Type sample() const { return sample(height, width); }
  Type sample(int64_t rows, int64_t columns) const {
    return {DType::kUInt8, channels_last ? Shape{rows, columns, channels} : Shape{channels, rows, columns}};
  }
};

}  // namespace onnxtrain
