// A quick partial answer to whether a path leads from one node of a graph to another.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// A spanning forest of a graph's edges from producers to readers, found by depth-first search. A node reaches its
// descendants in the forest, and maybe others.
class SpanningForest {
 public:
  // `users` as from ComputeUsers.
  SpanningForest(const Graph& graph, const std::vector<std::vector<int32_t>>& users);

  // Numbers the nodes so that the descendants of a node, itself included, are [begin(node), end(node)).
  int32_t begin(int32_t node) const { return begin_[node]; }
  int32_t end(int32_t node) const { return end_[node]; }

 private:
  std::vector<int32_t> begin_, end_;  // by node
};

}  // namespace onnxtrain
