// Estimated cost of a node, for profiles, plans and inspection.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns the FLOPs of one run according to the row; 0 for views, constants and unknown operators.
double NodeFlops(const Graph& graph, const Node& node);

// Returns the bytes of all inputs and outputs; 0 for views, constants and unknown operators.
double NodeBytes(const Graph& graph, const Node& node);

// Limits the host evaluation of one graph, in which a single product of constants could take minutes, and many cheap
// nodes hours.
class HostBudget {
 public:
  // Returns true if the host may evaluate the node, and then subtracts its cost. Nodes as small as computations of
  // shapes are free.
  bool Spend(const Graph& graph, const Node& node);

 private:
  double left_ = 5e8;  // FLOPs plus bytes; about a second
};

// Returns true for matrix products, convolutions and their gradients, which can reach the peak FLOPs of the machine.
bool IsProduct(const Node& node);

}  // namespace onnxtrain
