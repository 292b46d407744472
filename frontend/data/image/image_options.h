// What pictures become: a picture of any size becomes a sample of one shape.
#pragma once

#include <memory>
#include <string>

#include "frontend/data/cache_budget.h"
#include "frontend/data/image/augmentation.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// How a picture of other proportions fills the sample.
enum class ImageFit : uint8_t {
  kStretch,  // changes the proportions
  kCrop,     // the largest part of these proportions, around the center
  kPad       // the whole picture, with black bars
};

struct ImageOptions {
  int width = 0, height = 0;  // 0: not known, see `problem`
  int channels = 3;           // 1 or 3
  bool channels_last = false;
  bool bgr = false;  // blue before red
  ImageFit fit = ImageFit::kCrop;
  bool decode_scaling = false;  // a JPEG may be decoded at a half, a quarter or an eighth where that is large enough
  Augmentation augment = {};    // of training samples
  // Keeps decoded pictures where augmentation cuts another part every time; null: keeps none.
  std::shared_ptr<CacheBudget> cache = nullptr;
  std::string problem = "";  // why there is no size, for people

  Type sample() const {
    return {DType::kUInt8, channels_last ? Shape{height, width, channels} : Shape{channels, height, width}};
  }
};

}  // namespace onnxtrain
