// Rules that derive, from one divided operand of a node, how its other operands are divided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/state.h"

namespace onnxtrain {

// Divides an axis of a tensor among ranks. The axis consists of `blocks` equal blocks, and every rank has an equal part
// of each block: query, key and value rows in one weight are three blocks.
struct AxisSplit {
  int axis = 0;
  int64_t blocks = 1;

  bool operator==(const AxisSplit&) const = default;
};

// Returns true if the axis can be divided into equal parts for `ranks` ranks.
bool CanSplit(const Shape& shape, const AxisSplit& split, int ranks);
// Returns the shape of a rank's part.
Shape PartShape(Shape shape, const AxisSplit& split, int ranks);
// Returns the elements of a rank's part in a tensor of this shape.
ElementRuns FindRuns(const Shape& shape, const AxisSplit& split, int rank, int ranks);

HostTensor TakePart(const HostTensor& whole, const AxisSplit& split, int rank, int ranks);
// Copies a part, as TakePart returns it for the rank, into `whole`, which must own its bytes.
void PutPart(const HostTensor& part, const AxisSplit& split, int rank, int ranks, HostTensor* whole);

// The division of a node's operands; nullopt for operands that are whole on every rank.
struct NodeSplit {
  std::vector<std::optional<AxisSplit>> inputs, outputs;
  bool sums = false;  // the axis is summed over: the output of a rank is a term of the whole one
};

struct OperandIndex {
  bool output = false;
  size_t index = 0;
};

// Returns how the node computes its part if operand `at` is divided by `split`; nullopt if it cannot.
std::optional<NodeSplit> SplitNode(const Graph& graph, const Node& node, OperandIndex at, const AxisSplit& split,
                                   int ranks);

// Returns the axis of output 0 of a product that comes from input `weight` only; nullopt if there is none.
std::optional<int> FindWeightAxis(const Graph& graph, const Node& node, size_t weight);

// Returns the attributes of the node that computes the part.
Attrs PartAttrs(const Graph& graph, const Node& node, const NodeSplit& split, int ranks);

}  // namespace onnxtrain
