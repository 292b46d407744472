// Builds a new graph node by node from an old one. A rule replaces a node by an expression over rewritten values, or
// keeps it. Rewriting leaves dead nodes, which Dce removes.
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
  // Adds the inputs of `from` to `*to`, in order. Both graphs must outlive the Rewriter.
  Rewriter(const Graph& from, Graph* to);

  const Graph& from() const { return from_; }
  Builder& b() { return builder_; }
  // Returns the new value of an old one, which must have been rewritten already. Invalid for kNoValue.
  Val Map(ValueId old);
  // Returns the new values of the inputs of a node.
  std::vector<Val> MapOperands(const Node& node);
  // Sets the new value of an old one. A rule may set the outputs of later nodes, which Rewrite then skips.
  void Set(ValueId old, Val now) { map_[old] = now.id(); }
  bool IsSet(ValueId old) const { return map_[old] != kNoValue; }
  // Returns the new values by old ones; kNoValue for those not yet rewritten.
  const std::vector<ValueId>& values() const { return map_; }
  // Copies a node with mapped inputs, and maps its outputs.
  void Copy(const Node& node);
  // Copies the graph outputs, mapped.
  void CopyOutputs();

 private:
  const Graph& from_;
  Graph* to_;
  Builder builder_;
  std::vector<ValueId> map_;
};

// Returns one Val per output of the node, or nullopt to keep the node. A Val may be invalid if the output has no users
// or the rule has called Set for it. May inspect r.from() around the node and call r.Map for any value before the node.
using RewriteRule = std::function<std::optional<std::vector<Val>>(Rewriter& r, const Node& node)>;

// Applies the rule in order to every node whose outputs are not already set. Keeps dead nodes. Sets `changed` (may be
// null) to true if the rule replaced a node, and `values` (may be null) to the new values by old ones (kNoValue: none).
// New nodes get the source of the node that they replace; values keep their names.
absl::StatusOr<Graph> Rewrite(const Graph& graph, const RewriteRule& rule, bool* changed = nullptr,
                              std::vector<ValueId>* values = nullptr);

// Puts the nodes in the topological order `order`. Drops nodes that it omits; no graph output may depend on them.
Graph ReorderNodes(const Graph& graph, const std::vector<int32_t>& order);

}  // namespace onnxtrain
