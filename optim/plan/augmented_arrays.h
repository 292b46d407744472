// `augment` for pictures in arrays.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/image/array_pictures.h"
#include "optim/config/config.h"

namespace onnxtrain {

// The columns of inputs that are changed, which have one size.
struct AugmentedArrays {
  std::vector<int> columns;
  PixelLayout layout;
};

// Makes training change the samples that the inputs are fed with, where they are pictures, and labels of their height
// and width alike. nullopt: `augment` is not asked for, or no input is fed with pictures. Fails, with `path` in front,
// on values that cannot be changed so.
absl::StatusOr<std::optional<AugmentedArrays>> AugmentBoundArrays(const TrainConfig& config, const std::string& path,
                                                                  BoundData* data);

}  // namespace onnxtrain
