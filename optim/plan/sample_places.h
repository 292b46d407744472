// Constant inputs that refer to samples by their places in the data, as the edges or the adjacency matrix of a graph do
// whose nodes are the samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns the first of the inputs `constants` whose integers index the batch axis, or that fits no batch but one of all
// `samples`; "" where there is none. Where the model cannot be imported without the values of the constants, integers
// up to the place of the last sample are taken for indices. `import` has these values and the outputs of the run.
std::string FindInputOfPlaces(const OnnxModel& model, const ImportOptions& import,
                              const std::vector<std::string>& constants, int64_t samples);

// Returns the note for users.
std::string DescribePlaces(const std::string& input, int64_t samples);

}  // namespace onnxtrain
