// Detects what exporters did to a model that matters for training.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain::cli {

// BatchNorm folded into convolutions and Dropout that is not there any more, half precision.
std::vector<std::string> FindQuirks(const OnnxModel& file);

// Trained weights with several readers, and weights that were stored twice, as they are or transposed.
std::vector<std::string> TiedWeights(const ImportedModel& model);

}  // namespace onnxtrain::cli
