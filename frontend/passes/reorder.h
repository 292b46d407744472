// Reorders the nodes of a graph.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// `order`: a topological order. Drops nodes that it omits; outputs must not depend on them.
Graph ReorderNodes(const Graph& graph, const std::vector<int32_t>& order);

}  // namespace onnxtrain
