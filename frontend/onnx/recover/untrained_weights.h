// Names the weights that a model stores in forms without a gradient.
#pragma once

#include <string>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns the operators whose weights are packed into blocks of a few bits, or are integers that no node scales, with
// the number of such nodes: "com.microsoft.MatMulNBits (12)". Empty if there are none.
std::string FindUntrainedWeights(const OnnxModel& model);

}  // namespace onnxtrain
