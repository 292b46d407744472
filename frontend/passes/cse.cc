#include "frontend/passes/cse.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "absl/container/flat_hash_set.h"
#include "frontend/graph/attrs.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

size_t Hash(const Node& node, const ValueIds& inputs) {
  size_t hash = MixHash(std::hash<std::string_view>()(node.op), inputs.size());
  for (ValueId v : inputs) hash = MixHash(hash, static_cast<size_t>(v));
  return MixHash(hash, HashAttrs(node.attrs));
}

void SortIfCommutative(const Node& node, ValueIds* inputs) {
  if (FindOp(node.op)->commutative) std::ranges::sort(*inputs);
}

// Returns the node's inputs in the new graph, sorted where the operator is commutative.
ValueIds Operands(Rewriter& r, const Node& node) {
  ValueIds inputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? kNoValue : r.Map(v).id());
  SortIfCommutative(node, &inputs);
  return inputs;
}

}  // namespace

// Nodes that become equal only when others are merged read results of equal nodes.
bool HasEqualNodes(const Graph& graph) {
  absl::flat_hash_set<size_t> hashes;
  hashes.reserve(graph.nodes().size());
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    ValueIds inputs = node.inputs;
    SortIfCommutative(node, &inputs);
    return !hashes.insert(Hash(node, inputs)).second;
  });
}

absl::StatusOr<Graph> Cse(const Graph& graph) {
  struct Seen {
    const Node* node;  // of the old graph
    ValueIds operands;
  };
  std::unordered_multimap<size_t, Seen> seen;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    ValueIds operands = Operands(r, node);
    const size_t hash = Hash(node, operands);
    for (auto [it, end] = seen.equal_range(hash); it != end; ++it) {
      const Node& first = *it->second.node;
      if (first.op != node.op || it->second.operands != operands || !(first.attrs == node.attrs)) continue;
      std::vector<Val> same;
      for (ValueId v : first.outputs) same.push_back(r.Map(v));
      return same;
    }
    seen.emplace(hash, Seen{&node, std::move(operands)});
    return std::nullopt;
  });
}

}  // namespace onnxtrain
