// Options that turn pictures into samples, of one shape or of their own sizes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/image/image.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

class CacheBudget;

// Random changes of training pictures; 0 turns a change off.
struct Augmentation {
  double crop_min = 0, crop_max = 0;   // range of the cropped share of the area; the crop is resized
  double flip = 0, vertical_flip = 0;  // probabilities
  double rotate = 0;                   // maximum angle in degrees
  double color = 0;                    // maximum relative change of brightness, contrast and saturation
  int randaugment = 0, magnitude = 9;  // number of operations; strength, 0 to 30
  double erase = 0;                    // probability that a rectangle is erased
  double mixup = 0, cutmix = 0;        // see MixOptions (load/loader.h)

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool changes_pictures() const {
    return crop_max > 0 || flip > 0 || vertical_flip > 0 || rotate > 0 || color > 0 || randaugment > 0 || erase > 0;
  }
  bool operator==(const Augmentation&) const = default;
};

// Parses crop[:MIN[-MAX]], flip[:P], vflip[:P], rotate:DEGREES, color[:X], randaugment[:N[/M]], erase[:P],
// mixup[:ALPHA] and cutmix[:ALPHA]. Errors name the part.
absl::StatusOr<Augmentation> ParseAugmentation(std::span<const std::string> parts);

// How a picture is fitted to a sample of another aspect ratio.
enum class ImageFit : uint8_t {
  kStretch,  // changes the aspect ratio
  kCrop,     // takes the largest centered part with the aspect ratio
  kPad       // adds black bars
};

// Options of pictures that keep their sizes, or their aspect ratios.
struct PictureSizes {
  std::string input;   // name of the model input
  int64_t height = 0;  // > 0: pictures are resized to this height, and only their widths differ
  // Height, unless it is set, and width are padded to multiples of this. 0: chosen as the result of `find_multiple`
  // times a power of two, so that there are not too many sizes.
  int64_t multiple = 0;
  // Returns the smallest multiple that the model accepts; fails if it accepts one size only.
  std::function<absl::StatusOr<int64_t>()> find_multiple = {};
};

struct ImageOptions {
  int width = 0, height = 0;  // 0: unknown, see `problem`, unless `sizes` is set
  std::optional<PictureSizes> sizes = {};
  int channels = 3;  // 1 or 3
  bool channels_last = false;
  bool bgr = false;  // channel order is blue, green, red
  ImageFit fit = ImageFit::kCrop;
  Filter filter = Filter::kBilinear;  // resizes pictures; masks take the nearest pixel
  bool decode_scaling = false;        // allow decoding JPEG at 1/2, 1/4 or 1/8 if that is large enough
  Augmentation augment = {};          // applied in passes with ReadPass::augment
  // Budget of decoded pictures that are cached if augmentation makes samples differ in every pass; null: no cache.
  std::shared_ptr<CacheBudget> cache = nullptr;
  std::string problem = "";  // message that explains why the size is unknown
  bool wanted = true;        // false: the model takes no pictures; sources with other columns, too, omit them

  Type sample() const { return sample(height, width); }
  Type sample(int64_t rows, int64_t columns) const {
    return {DType::kUInt8, channels_last ? Shape{rows, columns, channels} : Shape{channels, rows, columns}};
  }
};

}  // namespace onnxtrain
