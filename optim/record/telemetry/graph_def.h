// The model as TensorBoard's graph.
#pragma once

#include <string>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns a GraphDef (tensorflow/core/framework/graph.proto) of the model's nodes, inputs, outputs and weights. Slashes
// and, in names without a slash, dots make the groups that a viewer folds.
std::string GraphDef(const OnnxModel& model);

}  // namespace onnxtrain
