// Undoes functions of single parameters that the exporter computed.
#pragma once

#include <string>

#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Trains the argument p of f(p) instead of the initializer `name`, as the module does: the temperature of contrastive
// models, the rates of state spaces, gates. Leaves alone what is no value of the function.
void TrainArgument(const std::string& name, ParameterFunction function, ParsedGraph* graph);

// Returns the initializer that the weight makes.
LazyTensor MakeValue(const ComputedFunction& computed, const LazyTensor& weight);

}  // namespace onnxtrain
