// What a node costs on paper: for profiles, plans and inspection.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Floating-point operations of one run, as the operator's row counts them; 0 for views, constants and unknown operators.
double NodeFlops(const Graph& graph, const Node& node);

// Bytes of all inputs and outputs, each once; 0 for views and constants.
double NodeBytes(const Graph& graph, const Node& node);

// Is it a product in the sense of machine peaks: a matrix product or convolution, or its gradient?
bool IsProduct(const Node& node);

}  // namespace onnxtrain
