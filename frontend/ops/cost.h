// Estimated cost of a node, for profiles, plans and inspection.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns the floating-point operations of one run by the operator's row; 0 for views, constants and unknown operators.
double NodeFlops(const Graph& graph, const Node& node);

// Returns the bytes of all inputs and outputs, each once; 0 for views and constants.
double NodeBytes(const Graph& graph, const Node& node);

// Returns whether the host evaluates the node in well below a second: a product of constants can be small and still
// take minutes.
bool IsCheapOnHost(const Graph& graph, const Node& node);

// Returns whether the node is a matrix product, a convolution or the gradient of one: its peak is that of the machine.
bool IsProduct(const Node& node);

}  // namespace onnxtrain
