// What the patterns of recognize are made of.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// A proposal: `root` can be computed by `form` from `leaves`, all of which stand before it.
struct Match {
  struct Leaf {
    ValueId value;
    Shape small;        // the shape on which the proposal is proved; both forms must be defined on it
    int64_t below = 2;  // integers are drawn from [0, below)
    std::optional<bool> first = std::nullopt;  // what a boolean always is in the first element of its rows
  };
  ValueId root = kNoValue;
  std::string_view op;  // the composite, for the count
  std::vector<Leaf> leaves;
  std::function<Val(Builder&, std::span<const Val> leaves)> form;
  std::set<ValueId> covers;  // the values that the composite replaces; never roots of other matches
};

// The graph with what several patterns ask about it.
class Pattern {
 public:
  explicit Pattern(const Graph& graph);

  const Graph& graph() const { return graph_; }
  // Does the value depend on parameters, state and constants alone?
  bool IsWeight(ValueId v) const { return weight_[v]; }
  // Is the value read by one node only, and no output of the graph?
  bool HasOneReader(ValueId v) const { return readers_[v] == 1; }
  // The producing node if it is that operator, else null.
  const Node* Producer(ValueId v, std::string_view op) const;
  // The number that all elements of a constant are.
  std::optional<double> Splat(ValueId v) const;

 private:
  const Graph& graph_;
  std::vector<bool> weight_;
  std::vector<int> readers_;
};

// What a value is computed from, grown node by node backwards. Splat constants are part of the region; weights are
// leaves.
class MatchedRegion {
 public:
  MatchedRegion(const Pattern& pattern, ValueId root);

  // Takes in the last node of the frontier. False, and no change, where that is an input or `allowed` refuses its
  // operator.
  bool Grow(const std::function<bool(const Node&)>& allowed);

  ValueId root() const { return root_; }
  // The one value that the region depends on besides weights, if it is one.
  std::optional<ValueId> only_leaf() const {
    return frontier_.size() == 1 && !nodes_.empty() ? std::optional(*frontier_.begin()) : std::nullopt;
  }
  const std::set<ValueId>& weights() const { return weights_; }
  const std::vector<const Node*>& nodes() const { return nodes_; }  // from the root backwards
  int Count(std::string_view op) const;
  std::set<ValueId> covers() const;
  const Pattern& pattern() const { return pattern_; }

 private:
  void Meet(ValueId v);

  const Pattern& pattern_;
  ValueId root_;
  std::set<ValueId> frontier_;  // ids grow along the graph: the last is computed last
  std::set<ValueId> weights_;
  std::vector<const Node*> nodes_;
};

using Proposals = std::vector<Match>;

// Proposals for a region that hangs on one leaf, and how far to grow it.
struct RegionPattern {
  bool (*allows)(const Node&);
  size_t most_nodes;
  Proposals (*propose)(const MatchedRegion&);
};

std::span<const RegionPattern> FunctionPatterns();  // Gelu, Softplus, …: functions of one number
std::span<const RegionPattern> NormPatterns();      // LayerNorm, Softmax
// Proposals whose root is this node.
Proposals ProposeAttention(const Pattern& pattern, const Node& root);
Proposals ProposeCrossEntropy(const Pattern& pattern, const Node& root);

}  // namespace onnxtrain
