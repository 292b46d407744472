// Clones parts of the forward pass for the backward pass instead of saving their results.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns by node whether it depends on a feed whose name begins with `seeds`, that is, belongs to the backward pass.
std::vector<bool> DependsOn(const Graph& graph, std::string_view seeds);

// The indices of backward nodes at which a forward node is cloned, ascending. Users before the first index read the
// original. Users from one index up to the next share a clone, whose live range ends at the last of them.
class Clones {
 public:
  static constexpr size_t kMaxClones = 4;

  Clones() { from_.fill(kNever); }
  // Returns a list with one clone for the whole backward pass.
  static Clones Once() { return Clones(0); }

  bool any() const { return from_[0] != kNever; }
  size_t count() const { return Before(kNever); }
  int32_t operator[](size_t i) const { return from_[i]; }
  // Returns the number of the clone that a backward user reads: 0 for the original, 1 for the first clone …
  size_t At(int32_t reader) const { return Before(reader + 1); }
  // Returns false if the list is full or contains `from`.
  bool Add(int32_t from) {
    const size_t at = Before(from);
    if (from_.back() != kNever || from_[at] == from) return false;
    std::copy_backward(from_.begin() + at, from_.end() - 1, from_.end());
    from_[at] = from;
    return true;
  }
  void Remove(int32_t from) {
    const auto end = std::remove(from_.begin(), from_.end(), from);
    std::fill(end, from_.end(), kNever);
  }
  bool operator==(const Clones&) const = default;

 private:
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  explicit Clones(int32_t from) : Clones() { from_[0] = from; }
  size_t Before(int32_t reader) const {
    size_t count = 0;
    while (count < kMaxClones && from_[count] < reader) ++count;
    return count;
  }

  std::array<int32_t, kMaxClones> from_;
};

// Returns true if the value is much smaller than the largest output of its node, such as the statistics of a
// normalization. Saving it costs little memory.
bool IsSideOutput(const Graph& graph, ValueId v);

// Returns the operator for clones of a node: NAMERecompute, which computes the first output from the inputs and side
// outputs of NAME, or the node's own operator if no such row exists.
std::string CloneOperator(const Graph& graph, const Node& node);

// Clones nodes before `boundary` at the places in `clones` (by node; missing entries: no clones). A clone is inserted
// directly before its first user and reads the operands that this user would read. A view is cloned with the node whose
// bytes it shares; its entry is ignored. All users read the original side outputs. If no user reads the original of a
// node, only its clones are computed. The resulting order keeps few bytes live. Clones of random operators compute the
// same numbers, since keys are inputs and streams are attributes.
struct Rematerialized {
  Graph graph;
  std::vector<int32_t> origin;  // by node: index of its original in the old graph
};
Rematerialized Rematerialize(const Graph& graph, int32_t boundary, const std::vector<Clones>& clones);

}  // namespace onnxtrain
