// Chooses sizes for the free dimensions of a model that is imported without data.
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

// Returns the sizes to try, most likely first: common sequence lengths and image heights.
std::span<const int64_t> TrialSizes();

// Evaluates a dimension whose name is an expression of sums and products, such as "past_length + 1": past lengths are
// `past`, all other names are `size`. Returns -1 for other expressions.
int64_t EvaluateDim(const std::string& name, int64_t size, int64_t past);

struct FreeDims {
  const OnnxModel& model;
  const std::map<std::string, int64_t>& given;  // --dim, by name
  int64_t size = 32;
  int64_t past = 0;
};

// Returns the extents of an input after its batch axis, axis 0, with sizes for its free dimensions: from `given`, from
// the requirements of a first layer, otherwise by name, so that equal names get equal sizes.
Shape SizeSample(const FreeDims& dims, const ModelInput& input);

// Returns the names of the non-batch dimensions of the input whose sizes have to be found.
std::set<std::string> FreeDimNames(const FreeDims& dims, const ModelInput& input);

// Returns the smallest power of two, up to 64, such that the model takes pictures whose height and width are multiples
// of it, and keeps picture-sized outputs at that size. Found by importing the model with several sizes. Fails if it
// accepts no other size, as with a dense layer on all pixels.
absl::StatusOr<int64_t> FindSizeMultiple(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                         const ImageOptions& images);

// Returns PictureSizes::multiple of the pictures that are fed; 0 if they have one size.
int64_t SizeMultiple(const BoundData& data);

// Fails, and names a file, if the model does not accept the lowest or the narrowest of the pictures.
absl::Status CheckSmallestPictures(const TrainConfig& config, const OnnxModel& model, const LossSpec& loss,
                                   const BoundData& data);

}  // namespace onnxtrain
