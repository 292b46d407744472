// Estimated cost of a node, for profiles, plans and inspection.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns the floating-point operations of one run by the operator's row; 0 for views, constants and unknown operators.
double NodeFlops(const Graph& graph, const Node& node);

// Returns the bytes of all inputs and outputs, each once; 0 for views and constants.
double NodeBytes(const Graph& graph, const Node& node);

// Bounds what the host evaluates of one graph: a product of constants can be small and take minutes, and many cheap
// nodes take hours together.
class HostBudget {
 public:
  // Returns whether the host may evaluate the node, and counts its cost. Nodes as small as computations of shapes cost
  // nothing.
  bool Spend(const Graph& graph, const Node& node);

 private:
  double left_ = 5e8;  // operations and bytes: about a second
};

// Returns whether the node is a matrix product, a convolution or the gradient of one: its peak is that of the machine.
bool IsProduct(const Node& node);

}  // namespace onnxtrain
