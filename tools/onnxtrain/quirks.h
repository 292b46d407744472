// What a user should know about a file before training it: what exporters do to models, seen from their traces.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain::cli {

// BatchNorm folded into convolutions and Dropout that is not there any more, half precision.
std::vector<std::string> QuirksOfFile(const OnnxModel& file);

// Weights with several readers, and weights that were stored twice, as they are or transposed.
std::vector<std::string> TiedWeights(const ImportedModel& model);

}  // namespace onnxtrain::cli
