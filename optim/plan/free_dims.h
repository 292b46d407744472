// Sizes for free dimensions of a model that is tried without data.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/image/image_options.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Sizes to try, the likeliest first: lengths of sequences and heights of images that networks demand.
std::span<const int64_t> TrialSizes();

// The value of a dimension that is named by an expression of sums and products, "past_length + 1", where lengths of a
// past are `past` and all other names are `size`; -1 for other expressions.
int64_t EvaluateDim(const std::string& name, int64_t size, int64_t past);

struct FreeDims {
  const OnnxModel& model;
  const std::map<std::string, int64_t>& given;  // --dim, by name
  int64_t size = 32;
  int64_t past = 0;
};

// The extents of an input behind its batch axis, which is axis 0, with free dimensions sized: those that `given` names,
// those that a first layer demands, and the others by their names, so that equal names have equal sizes.
Shape SizeSample(const FreeDims& dims, const ModelInput& input);

// The names of the dimensions behind the batch axis of the input whose sizes have to be found.
std::set<std::string> FreeDimNames(const FreeDims& dims, const ModelInput& input);

// Models on pictures of several sizes: which sizes they take.

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
