// Chooses the nodes of a graph that work channels last: those that require it, and those that then leave the fewest
// bytes to be transposed, found by local search.
#pragma once

#include <algorithm>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

// Is operand i among those that the bits name? Bit 31 stands for all from 31 on.
inline bool HasBit(uint32_t bits, size_t i) { return (bits >> std::min<size_t>(i, 31) & 1) != 0; }

struct LayoutConstraint {
  enum class Kind : uint8_t { kRowMajor, kPropagate, kNhwc };
  Kind kind = Kind::kRowMajor;
  LayoutOperands operands;  // those that have the node's layout; all others are row-major
};

// By node index: true for channels last. `constraints` is by node index. `inseparable` is by value: the producer and
// the users of such a value share one layout.
std::vector<bool> SearchLayouts(const Graph& graph, const std::vector<LayoutConstraint>& constraints,
                                const std::vector<bool>& inseparable);

}  // namespace onnxtrain::cpu
