// Chooses by local search which nodes of a graph work channels last: all that require it, and the others such that the
// fewest bytes are transposed.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

struct LayoutConstraint {
  enum class Kind : uint8_t { kRowMajor, kPropagate, kNhwc };
  Kind kind = Kind::kRowMajor;
  LayoutOperands operands;  // operands in the layout of the node; all others are row-major
};

// Returns the constraint of an operator that computes in either layout, or of a transpose between the layouts;
// kRowMajor for all others.
LayoutConstraint FindReorderConstraint(const Graph& graph, const Node& node);

// Returns, by node, true for channels last. `constraints` is indexed by node. `inseparable` is indexed by value: the
// producer and the users of such a value get the same layout.
std::vector<bool> SearchLayouts(const Graph& graph, const std::vector<LayoutConstraint>& constraints,
                                const std::vector<bool>& inseparable);

}  // namespace onnxtrain
