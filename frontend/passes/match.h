// Matchers over graphs, and regions for the patterns of recognize.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// A proposal: `form` computes `root` from `leaves`, all of which precede it.
struct Match {
  struct Leaf {
    ValueId value;
    Shape small;        // the shape on which the proposal is proved; both forms must be defined on it
    int64_t below = 2;  // integers are drawn from [0, below)
    // What a boolean always is in the first element of its rows. Numbers that have it are 0 or 1, too.
    std::optional<bool> first = std::nullopt;
    // What the whole first row is when numbers are drawn again.
    std::optional<double> first_row = std::nullopt;
  };
  ValueId root = kNoValue;
  std::string_view op;  // the composite, for the count
  std::vector<Leaf> leaves;
  std::function<Val(Builder&, std::span<const Val> leaves)> form;
  std::set<ValueId> covers;  // the values that the composite replaces; never roots of other matches
};

// A graph with its use counts and weights.
class Pattern {
 public:
  explicit Pattern(const Graph& graph);

  const Graph& graph() const { return graph_; }
  // Returns whether the value depends on parameters, state and constants alone.
  bool IsWeight(ValueId v) const { return weight_[v]; }
  // Returns whether one operand of one node is the only use of the value; graph outputs are uses.
  bool HasOneUse(ValueId v) const { return uses_[v] == 1; }
  // Returns the users of the value, each once.
  std::span<const int32_t> users(ValueId v) const { return users_[v]; }
  bool IsOutput(ValueId v) const { return is_output_[v]; }
  // Returns the sole user of the value, by one operand; null if there is none, it is no `op` ("": any), or the value is
  // a graph output.
  const Node* SoleUser(ValueId v, std::string_view op = "") const;
  // Returns the operand of the Cast between these types that produces the value, else kNoValue.
  ValueId BeforeCast(ValueId v, DType from, DType to) const;
  // Returns the producer if it is that operator, else null.
  const Node* Producer(ValueId v, std::string_view op) const;
  // Returns the value of all elements of a splat constant.
  std::optional<double> Splat(ValueId v) const;
  // Returns a number for all that a pattern may ask of the node alone: operator, attributes, types, constants, which
  // operands are weights.
  int32_t Kind(const Node& node) const;

 private:
  const Graph& graph_;
  std::vector<bool> weight_, is_output_;
  std::vector<int> uses_;
  Users users_;
  mutable std::vector<std::optional<std::optional<double>>> splats_;  // by value, as far as asked for
  mutable std::map<std::string, int32_t> kinds_;
  mutable std::vector<int32_t> kind_;  // by node; -1: not computed yet
};

using Perm = std::vector<int64_t>;

// Has a factor of the scores of attention, [..., queries, keys], one number for each head, or one for all?
bool IsPerHead(const Graph& graph, ValueId factor);

Perm IdentityPerm(int rank);
// The permutation that undoes it.
Perm InversePerm(const Perm& perm);
// Follows transposes from `*v` to the value that they permute. Returns the permutation that gives `*v` from it.
Perm SkipTransposes(const Pattern& pattern, ValueId* v);
// Returns the permutation of the transposes that read the value, if nothing else does and all are the same.
std::optional<Perm> FindUserPerm(const Pattern& pattern, ValueId v);

// A region that computes a value, grown backwards node by node. Splat constants belong to the region; weights are
// leaves.
class MatchedRegion {
 public:
  MatchedRegion(const Pattern& pattern, ValueId root);

  // Adds the last node of the frontier. Returns false, without a change, if that is an input or not in `allowed`, by
  // node.
  bool Grow(const std::vector<bool>& allowed);

  ValueId root() const { return root_; }
  // Can a larger region of so many nodes have an only leaf? Each node takes one value from the frontier.
  bool CanEndWithin(size_t most_nodes) const {
    return nodes_.size() < most_nodes && frontier_.size() <= most_nodes - nodes_.size() + 1;
  }
  // Returns the only value that the region depends on besides weights, if there is one.
  std::optional<ValueId> only_leaf() const {
    return frontier_.size() == 1 && !nodes_.empty() ? std::optional(frontier_.front()) : std::nullopt;
  }
  const std::vector<ValueId>& weights() const { return weights_; }  // in order, each once
  const std::vector<const Node*>& nodes() const { return nodes_; }  // from the root backwards
  int Count(std::string_view op) const;
  std::set<ValueId> covers() const;
  const Pattern& pattern() const { return pattern_; }
  // Regions of equal signature are the same computation on leaves of the same types: what is proved of one holds for
  // all.
  std::vector<int32_t> signature() const;

 private:
  void AddOperand(ValueId v);

  const Pattern& pattern_;
  ValueId root_;
  std::vector<ValueId> frontier_;  // in order: ids grow along the graph, so that the last is computed last
  std::vector<ValueId> weights_;   // in order
  std::vector<const Node*> nodes_;
};

using Proposals = std::vector<Match>;

// Proposals for regions over one leaf, and the largest region.
struct RegionPattern {
  bool (*allows)(const Node&);
  size_t most_nodes;
  Proposals (*propose)(const MatchedRegion&);
};

std::span<const RegionPattern> FunctionPatterns();  // Gelu, Softplus, …: functions of one number
std::span<const RegionPattern> NormPatterns();      // LayerNorm, Softmax
// Returns proposals whose root is this node.
Proposals ProposeAttention(const Pattern& pattern, const Node& root);
Proposals ProposeCrossEntropy(const Pattern& pattern, const Node& root);

}  // namespace onnxtrain
