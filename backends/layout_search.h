// Chooses the nodes of a graph that work channels last: those that require it, and those that then leave the fewest
// bytes to be transposed, found by local search.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

struct LayoutConstraint {
  enum class Kind : uint8_t { kRowMajor, kPropagate, kNhwc };
  Kind kind = Kind::kRowMajor;
  LayoutOperands operands;  // those that have the node's layout; all others are row-major
};

// The constraint of an operator that computes in any order, or of a transpose between the layouts; row-major for all
// others.
LayoutConstraint FindReorderConstraint(const Graph& graph, const Node& node);

// By node index: true for channels last. `constraints` is by node index. `inseparable` is by value: the producer and
// the users of such a value share one layout.
std::vector<bool> SearchLayouts(const Graph& graph, const std::vector<LayoutConstraint>& constraints,
                                const std::vector<bool>& inseparable);

}  // namespace onnxtrain
