// ai.onnx.preview.training.Gradient: the gradient of a named value of the graph around the node.
#pragma once

#include <functional>
#include <string>

#include "frontend/onnx/import/scope.h"

namespace onnxtrain {

// Finds the tensor that a name stands for; an error if that failed or is not a tensor.
using FindTensorFn = std::function<absl::StatusOr<Val>(const std::string&)>;

// Differentiates y with respect to the values named by the attribute xs, at the point that the inputs give for xs and
// zs: most often these values themselves. Returns one gradient for each output.
ImportValuesOr ImportGradientNode(const ParsedNode& node, Builder* builder, const FindTensorFn& find);

}  // namespace onnxtrain
