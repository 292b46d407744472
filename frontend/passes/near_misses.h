// Explains which parts of a graph look like a composite that recognize knows, but were not replaced.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns one line per near miss of a canonical graph: the composite, the node and the reason.
std::vector<std::string> FindNearMisses(const Graph& graph);

}  // namespace onnxtrain
