// Sizes for free dimensions of a model that is tried without data.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include "frontend/onnx/import.h"

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

}  // namespace onnxtrain
