// Constant inputs that refer to samples by their places in the data, as the edges or the adjacency matrix of a graph do
// whose nodes are the samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns the first of the inputs `constants` whose integers index the batch axis, or that fits no batch but one of all
// `samples`; "" where there is none. `import` has the values of the constants and the outputs of the run.
std::string FindInputOfPlaces(const OnnxModel& model, const ImportOptions& import,
                              const std::vector<std::string>& constants, int64_t samples);

std::string DescribePlaces(const std::string& input, int64_t samples);

}  // namespace onnxtrain
