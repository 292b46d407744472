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

// Returns by node whether it depends on a feed whose name begins with `seeds`, that is, on a gradient.
std::vector<bool> DependsOn(const Graph& graph, std::string_view seeds);

// Returns the index of the first such node, or the number of nodes. Nodes before it are the forward pass.
int32_t FirstBackwardNode(const Graph& graph, std::string_view seeds);

// The nodes of the backward pass, by ascending index, at which a forward node is cloned. Users before the first read
// the original. Users from one of them up to the next share a clone, which dies after the last of these users.
class Clones {
 public:
  static constexpr size_t kMaxClones = 4;

  Clones() { from_.fill(kNever); }
  // Returns one clone for the whole backward pass.
  static Clones Once() { return Clones(0); }

  bool any() const { return from_[0] != kNever; }
  size_t count() const { return Before(kNever); }
  int32_t operator[](size_t i) const { return from_[i]; }
  // Returns what a user in the backward pass reads: 0 the original, 1 the first clone …
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

// Returns whether the value is much smaller than the largest output of its node (the statistics of a normalization), so
// that saving it costs nothing.
bool IsSideOutput(const Graph& graph, ValueId v);

// Returns the operator of a node's clones: NAMERecompute if it exists, which computes the first output from the inputs
// and the side outputs of NAME, else the node's own.
std::string CloneOperator(const Graph& graph, const Node& node);

// Clones nodes before `boundary` as `again` (by node, may be shorter) says. Inserts a clone directly before its first
// user; the operands of a clone are what its user would read. A view follows the node whose bytes it has, so entries of
// views are ignored. All users read the original side outputs. A node without users of the original runs as a clone
// only. The resulting order keeps few bytes live. Clones of random operators repeat their numbers: keys are inputs,
// streams are attributes.
struct Rematerialized {
  Graph graph;
  std::vector<int32_t> origin;  // by node: the node of the old graph that it is or clones
};
Rematerialized Rematerialize(const Graph& graph, int32_t boundary, const std::vector<Clones>& again);

}  // namespace onnxtrain
