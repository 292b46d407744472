// Undoes exponentials of parameters that the exporter computed.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/parsed.h"

namespace onnxtrain {

// Trains the logarithms of these initializers, as the module does: the temperature of contrastive models, the rates of
// state spaces. Leaves alone those that are not positive, or negative where they are negated.
void TrainLogarithms(const std::vector<std::string>& names, bool negated, ParsedGraph* graph);

// Returns the initializer that the weight makes.
HostTensor MakeExponential(const Exponential& exponential, const HostTensor& weight);

}  // namespace onnxtrain
