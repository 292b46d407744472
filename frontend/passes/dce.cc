#include "frontend/passes/dce.h"

#include <algorithm>
#include <utility>
#include <vector>

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

}  // namespace onnxtrain
