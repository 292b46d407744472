// Which operands of a node are divided, where one of them is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/state.h"

namespace onnxtrain {

// How an axis of a tensor is divided among ranks.

// The axis consists of `blocks` equal blocks, and every rank has an equal part of each: rows of query, key and value in
// one weight are three blocks.
struct AxisSplit {
  int axis = 0;
  int64_t blocks = 1;

  bool operator==(const AxisSplit&) const = default;
};

// Has the axis equal parts for so many ranks?
bool CanSplit(const Shape& shape, const AxisSplit& split, int ranks);
// Of the part of a rank.
Shape PartShape(Shape shape, const AxisSplit& split, int ranks);
// Of the elements of a rank in a tensor of this shape.
ElementRuns FindRuns(const Shape& shape, const AxisSplit& split, int rank, int ranks);

HostTensor TakePart(const HostTensor& whole, const AxisSplit& split, int rank, int ranks);
// Writes what TakePart returns for the rank. The bytes of `whole` must be its own.
void PutPart(const HostTensor& part, const AxisSplit& split, int rank, int ranks, HostTensor* whole);

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
