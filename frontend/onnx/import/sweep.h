// Removes what an imported graph does not need.
#pragma once

#include <map>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

struct SweptGraph {
  Graph graph;
  std::vector<ValueId> values;  // by value of the source: its value here, or kNoValue
};

// Copies what the outputs depend on. Feeds stay in any case, first and in order: they are the model's interface.
// Other inputs follow in the order in which the graph reads them: by layers.
SweptGraph SweepGraph(const Graph& graph);

}  // namespace onnxtrain
