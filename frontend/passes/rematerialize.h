// Runs parts of the forward pass again instead of keeping their results for the backward pass.
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

// By node: does it depend on a feed whose name begins with `seeds`, that is on a gradient?
std::vector<bool> DependsOn(const Graph& graph, std::string_view seeds);

// The first such node in the list, or as many as there are nodes where none is. What stands before it is the forward pass.
int32_t FirstBackwardNode(const Graph& graph, std::string_view seeds);

// When the results of a forward node are made anew: at nodes of the backward pass, by index and ascending. Readers before the first
// of them read the original, those from one up to before the next share a clone, which is thrown away between.
class Repeats {
 public:
  static constexpr size_t kMost = 4;

  Repeats() { from_.fill(kNever); }
  // One clone for the whole backward pass.
  static Repeats Once() { return Repeats(0); }

  bool any() const { return from_[0] != kNever; }
  size_t count() const { return Before(kNever); }
  int32_t operator[](size_t i) const { return from_[i]; }
  // Which of them serves a reader in the backward pass: 0 the original, 1 the first clone …
  size_t At(int32_t reader) const { return Before(reader + 1); }
  // False where there is no more room, or nothing to add.
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
  bool operator==(const Repeats&) const = default;

 private:
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  explicit Repeats(int32_t from) : Repeats() { from_[0] = from; }
  size_t Before(int32_t reader) const {
    size_t count = 0;
    while (count < kMost && from_[count] < reader) ++count;
    return count;
  }

  std::array<int32_t, kMost> from_;
};

// Is the value so much smaller than the largest result of its node that keeping it costs nothing? Statistics of a normalization are.
bool IsSideResult(const Graph& graph, ValueId v);

// The operator that a node's clones are: NAMEAgain where there is one that makes the first result from the inputs and the side results
// of NAME, else its own.
std::string OperatorOfClones(const Graph& graph, const Node& node);

// Clones results of nodes before `boundary` as `again` (by node, may be shorter) says. A clone stands right before the first
// reader that needs it; clones read what serves the reader that they are made for. A view goes with the node whose bytes it
// shows, so what is said of views does not matter. Originals of side results serve all readers. A node whose original nothing needs
// runs as a clone only. The list order of the result is the one that needs little memory. Random operators draw the same numbers
// again, as their keys are inputs and their streams attributes.
struct Rematerialized {
  Graph graph;
  std::vector<int32_t> origin;  // by node: which node of the old graph it is or repeats
};
Rematerialized Rematerialize(const Graph& graph, int32_t boundary, const std::vector<Repeats>& again);

}  // namespace onnxtrain
