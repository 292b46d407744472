// Matchers over graphs for fusions, and the regions and proposals by which recognize finds composites.
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

// A proposed replacement: `form` computes the value `root` from the values `leaves`, all of which precede it.
struct Match {
  struct Leaf {
    ValueId value;
    Shape small;        // the shape on which both forms are evaluated; both must be defined on it
    int64_t below = 2;  // random integers are in [0, below)
    // For conditions: the value of the first element of every row. If set, the other elements are 0 or 1.
    std::optional<bool> first = std::nullopt;
    // Fills the first row in the second evaluation.
    std::optional<double> first_row = std::nullopt;
  };
  ValueId root = kNoValue;
  std::string_view op;  // the name of the composite
  std::vector<Leaf> leaves;
  std::function<Val(Builder&, std::span<const Val> leaves)> form;
  std::set<ValueId> covers;  // the values that the composite replaces; they cannot be roots of other matches
};

// A graph with its users, use counts and weight-dependent values, for pattern matching. Refers to the graph.
class Pattern {
 public:
  explicit Pattern(const Graph& graph);

  const Graph& graph() const { return graph_; }
  // Returns true if the value depends only on parameters, state and constants.
  bool IsWeight(ValueId v) const { return weight_[v]; }
  // Returns true if the value has one use: as one operand of one node, or as a graph output.
  bool HasOneUse(ValueId v) const { return uses_[v] == 1; }
  // Returns the users of the value, each once.
  std::span<const int32_t> users(ValueId v) const { return users_[v]; }
  bool IsOutput(ValueId v) const { return is_output_[v]; }
  // Returns the node whose operand is the only use of the value. Null if there is no such node, if it is not an `op`
  // ("": any operator), or if the value is a graph output.
  const Node* SoleUser(ValueId v, std::string_view op = "") const;
  // Returns x if the value is a Cast of x between these types, otherwise kNoValue.
  ValueId BeforeCast(ValueId v, DType from, DType to) const;
  // Returns the producer if it is that operator, else null.
  const Node* Producer(ValueId v, std::string_view op) const;
  // Returns the value of all elements if they are equal and constant.
  std::optional<double> Splat(ValueId v) const;
  // Returns an id of everything that a pattern may ask about a single node: operator, attributes, types, constants, and
  // which operands are weights. Nodes with equal ids are interchangeable for patterns.
  int32_t Kind(const Node& node) const;

 private:
  const Graph& graph_;
  std::vector<bool> weight_, is_output_;
  std::vector<int> uses_;
  Users users_;
  mutable std::vector<std::optional<std::optional<double>>> splats_;  // cache of Splat, by value
  mutable std::map<std::string, int32_t> kinds_;
  mutable std::vector<int32_t> kind_;  // cache of Kind, by node; -1: not computed yet
};

using Perm = std::vector<int64_t>;

// Returns true if a factor of attention scores [..., queries, keys] has one number per head, or one for all heads.
bool IsPerHead(const Graph& graph, ValueId factor);

Perm IdentityPerm(int rank);
// Returns the inverse permutation.
Perm InversePerm(const Perm& perm);
// Replaces `*v` by the operand of the chain of transposes that computes it. Returns the permutation of that chain.
Perm SkipTransposes(const Pattern& pattern, ValueId* v);
// Returns the permutation if all users of the value are transposes with the same permutation.
std::optional<Perm> FindUserPerm(const Pattern& pattern, ValueId v);

// A set of nodes that computes the value `root`, grown from it towards the inputs. Splat constants belong to the
// region; weights do not.
class MatchedRegion {
 public:
  MatchedRegion(const Pattern& pattern, ValueId root);

  // Adds the last node of the frontier. Changes nothing and returns false if that is an input or `allowed` (by node) is
  // false for it.
  bool Grow(const std::vector<bool>& allowed);

  ValueId root() const { return root_; }
  // Returns true if the region can grow to a single leaf within `max_nodes` nodes. Each node removes one value from
  // the frontier.
  bool CanEndWithin(size_t max_nodes) const {
    return nodes_.size() < max_nodes && frontier_.size() <= max_nodes - nodes_.size() + 1;
  }
  // Returns the value that the region depends on if, apart from weights, it is the only one.
  std::optional<ValueId> only_leaf() const {
    return frontier_.size() == 1 && !nodes_.empty() ? std::optional(frontier_.front()) : std::nullopt;
  }
  const std::vector<ValueId>& weights() const { return weights_; }  // sorted by id, without repeats
  const std::vector<const Node*>& nodes() const { return nodes_; }  // from the root backwards
  int Count(std::string_view op) const;
  std::set<ValueId> covers() const;
  const Pattern& pattern() const { return pattern_; }
  // Regions with equal signatures are the same computation on leaves of the same types, so one proof holds for all.
  std::vector<int32_t> signature() const;

 private:
  void AddOperand(ValueId v);

  const Pattern& pattern_;
  ValueId root_;
  std::vector<ValueId> frontier_;  // sorted by id, that is, in the order of computation
  std::vector<ValueId> weights_;   // sorted by id
  std::vector<const Node*> nodes_;
};

using Proposals = std::vector<Match>;

// Proposes replacements for regions with a single leaf.
struct RegionPattern {
  bool (*allows)(const Node&);  // true for nodes that a region may contain
  size_t max_nodes;             // limit for a region
  Proposals (*propose)(const MatchedRegion&);
};

std::span<const RegionPattern> FunctionPatterns();  // elementwise functions of one value: Gelu, Softplus …
std::span<const RegionPattern> NormPatterns();      // LayerNorm, Softmax
// Propose replacements of the value that `root` computes.
Proposals ProposeAttention(const Pattern& pattern, const Node& root);
Proposals ProposeCrossEntropy(const Pattern& pattern, const Node& root);

}  // namespace onnxtrain
