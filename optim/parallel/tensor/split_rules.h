// Which operands of a node are divided, where one of them is.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "frontend/graph/graph.h"
#include "optim/parallel/tensor/axis_split.h"

namespace onnxtrain {

// Absent: the operand is whole on every rank.
struct NodeSplit {
  std::vector<std::optional<AxisSplit>> inputs, outputs;
  bool sums = false;  // the axis is summed over: the output of a rank is a term of the whole one
};

struct OperandIndex {
  bool output = false;
  size_t index = 0;
};

// Returns how the node computes its part where operand `at` is divided in this way; nullopt where it cannot.
std::optional<NodeSplit> SplitNode(const Graph& graph, const Node& node, OperandIndex at, const AxisSplit& split,
                                   int ranks);

// The axis of output 0 of a product that input `weight` alone has, or none.
std::optional<int> FindWeightAxis(const Graph& graph, const Node& node, size_t weight);

// The attributes of the node for its part.
Attrs PartAttrs(const Graph& graph, const Node& node, const NodeSplit& split, int ranks);

}  // namespace onnxtrain
