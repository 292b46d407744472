// Models on pictures of several sizes: which sizes they take.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/image/image_options.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Returns the least power of two, up to 64, such that the model takes pictures whose height and width are multiples of
// it, and keeps the size of outputs that have the size of the pictures. Found by importing the model with some sizes.
// Fails where it takes no further sizes, as one with a dense layer on all pixels.
absl::StatusOr<int64_t> FindSizeMultiple(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                         const ImageOptions& images);

// PictureSizes::multiple of the pictures that are fed; 0: they have one size.
int64_t SizeMultiple(const BoundData& data);

// Fails, naming a file, where the model does not take the lowest or the narrowest of the pictures.
absl::Status CheckSmallestPictures(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                   const BoundData& data);

}  // namespace onnxtrain
