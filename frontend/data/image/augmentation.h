// Random changes of training pictures.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
