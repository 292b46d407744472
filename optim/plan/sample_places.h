// Finds constant inputs that refer to samples by position in the data, such as the edges or the adjacency matrix of a
// graph whose nodes are the samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns the first of the inputs `constants` whose integers index the batch axis, or that accepts only one batch of
// all `samples`; "" if there is none. If the model cannot be imported without the values of the constants, treats
// integers below `samples` as indices. `import` has these values and the outputs of the run.
std::string FindInputOfPlaces(const OnnxModel& model, const ImportOptions& import,
                              const std::vector<std::string>& constants, int64_t samples);

// Returns the note for users.
std::string DescribePlaces(const std::string& input, int64_t samples);

}  // namespace onnxtrain
