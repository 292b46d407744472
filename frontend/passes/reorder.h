// Puts the nodes of a graph into another order.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// `order`: nodes in a topological order. Those that are left out are dropped; outputs must not depend on them.
Graph Reordered(const Graph& graph, const std::vector<int32_t>& order);

}  // namespace onnxtrain
