#include "frontend/passes/eliminate.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

std::vector<bool> Needed(const Graph& graph) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const GraphOutput& output : graph.outputs()) {
    needed[output.value] = true;
    if (output.into != kNoValue) needed[output.into] = true;
  }
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    bool any = false;
    for (ValueId v : node.outputs) any |= needed[v];
    if (!any) continue;
    // Keeps all outputs of a live node.
    for (ValueId v : node.outputs) needed[v] = true;
    for (ValueId v : node.inputs) {
      if (v != kNoValue) needed[v] = true;
    }
  }
  return needed;
}

bool HasDeadNodes(const Graph& graph) {
  const std::vector<bool> needed = Needed(graph);
  return std::ranges::any_of(graph.nodes(),
                             [&](const Node& node) { return node.outputs.empty() || !needed[node.outputs[0]]; });
}

}  // namespace

Graph Dce(const Graph& graph, const DceOptions& options, std::vector<ValueId>* values) {
  const std::vector<bool> needed = Needed(graph);
  Graph result;
  result.ReserveAs(graph);
  std::vector<ValueId> map(graph.values().size(), kNoValue);
  auto mapped = [&](ValueId v) { return v == kNoValue ? kNoValue : map[v]; };
  for (const GraphInput& input : graph.inputs()) {
    const bool droppable = input.kind == InputKind::kFeed ? options.drop_unused_feeds : options.drop_unused_weights;
    if (droppable && !needed[input.value]) continue;
    map[input.value] = result.AddInput(input.kind, input.name, graph.type(input.value));
    result.SetValueName(map[input.value], graph.value(input.value).name);
  }
  for (const Node& node : graph.nodes()) {
    if (node.outputs.empty() || !needed[node.outputs[0]]) continue;
    ValueIds inputs;
    for (ValueId v : node.inputs) inputs.push_back(mapped(v));
    const Node& copy = result.AddCopy(graph, node, std::move(inputs));
    for (size_t i = 0; i < node.outputs.size(); ++i) map[node.outputs[i]] = copy.outputs[i];
  }
  for (const GraphOutput& output : graph.outputs()) {
    result.AddOutput(output.name, mapped(output.value), mapped(output.into));
  }
  if (values != nullptr) *values = std::move(map);
  return result;
}

Pass DcePass() {
  return {"dce", [](const Graph& graph) -> absl::StatusOr<Graph> { return Dce(graph); }, HasDeadNodes};
}

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

// Need not merge nodes to find all equal ones: nodes that become equal only by a merge read results of nodes that are
// already equal.
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
    const Node* node;  // in the old graph
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
