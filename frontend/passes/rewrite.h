// Passes as rewriting: a new graph is built node by node from the old one. A rule replaces a node by an expression over
// the already rewritten values, or leaves it alone. Dce removes the nodes that a rewrite leaves dead.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

class Rewriter {
 public:
  // Both graphs must outlive the Rewriter. Inputs of `from` are added to `*to` at once, in order.
  Rewriter(const Graph& from, Graph* to);

  const Graph& from() const { return from_; }
  Builder& b() { return builder_; }
  // The new value of an old one, which must have been rewritten already. Invalid for kNoValue.
  Val Map(ValueId old);
  // The new values of a node's inputs.
  std::vector<Val> MapOperands(const Node& node);
  // A rule may set values of later nodes: Rewrite then skips those nodes.
  void Set(ValueId old, Val now) { map_[old] = now.id(); }
  bool IsSet(ValueId old) const { return map_[old] != kNoValue; }
  // The new values by old ones so far.
  const std::vector<ValueId>& values() const { return map_; }
  // Copies a node as it is; its outputs are mapped.
  void Copy(const Node& node);
  // Copies the list of graph outputs, mapped.
  void CopyOutputs();

 private:
  const Graph& from_;
  Graph* to_;
  Builder builder_;
  std::vector<ValueId> map_;
};

// One Val per output of the node (invalid: it has no users, or the rule has set it), or nullopt to keep the node. May
// look at r.from() around the node (its producers and their attributes) and use r.Map on any value before it.
using RewriteRule = std::function<std::optional<std::vector<Val>>(Rewriter& r, const Node& node)>;

// Applies the rule to every node in order, but for nodes whose outputs an earlier rule has set. The result is not
// cleaned of dead nodes. `changed` (may be null) is set to true if the rule fired, `values` (may be null) to the new
// values by old ones, kNoValue where there is none. New nodes carry the source of the node they replace, and values
// keep their names.
absl::StatusOr<Graph> Rewrite(const Graph& graph, const RewriteRule& rule, bool* changed = nullptr,
                              std::vector<ValueId>* values = nullptr);

// Reorders the nodes of a graph.

// `order`: a topological order. Drops nodes that it omits; outputs must not depend on them.
Graph ReorderNodes(const Graph& graph, const std::vector<int32_t>& order);

}  // namespace onnxtrain
