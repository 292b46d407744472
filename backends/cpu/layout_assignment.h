// Which nodes of a graph work channels last.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// The inputs and outputs of a node that have its layout, as bits: the others are always plain.
struct LayoutSlots {
  uint32_t inputs = 0, outputs = 0;
};

struct LayoutWish {
  enum class Kind : uint8_t { kPlain, kFollow, kLast };
  Kind kind = Kind::kPlain;
  LayoutSlots slots;
};

// By node index: true for channels last. `wishes` is by node index. `inseparable` is by value: producer and readers of such a value
// share one layout.
std::vector<bool> AssignLayouts(const Graph& graph, const std::vector<LayoutWish>& wishes, const std::vector<bool>& inseparable);

// Is [N,C,…] → [N,…,C] no more than a reshape?
bool MovesNothing(const Shape& shape);

}  // namespace onnxtrain::cpu
