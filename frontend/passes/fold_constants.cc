#include "frontend/passes/fold_constants.h"

#include <algorithm>

#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxExpandBytes = 256;

size_t OutputBytes(const Graph& graph, const Node& node) {
  size_t bytes = 0;
  for (ValueId v : node.outputs) bytes += graph.type(v).bytes();
  return bytes;
}

// Can the node be folded once its inputs are constants?
bool CanFold(const Graph& graph, const Node& node, size_t max_bytes) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->evaluate != nullptr && !node.inputs.empty() &&
         OutputBytes(graph, node) <= (node.op == "Expand" ? kMaxExpandBytes : max_bytes);
}

}  // namespace

bool HasFoldableNodes(const Graph& graph, size_t max_bytes) {
  const auto known = [&](ValueId v) { return v == kNoValue || graph.FindConstant(v) != nullptr; };
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    return std::ranges::all_of(node.inputs, known) && CanFold(graph, node, max_bytes);
  });
}

absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes, HostBudget* budget) {
  HostBudget own;
  if (budget == nullptr) budget = &own;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!CanFold(graph, node, max_bytes)) return std::nullopt;
    std::vector<const HostTensor*> inputs;
    std::vector<Type> types;
    for (ValueId v : node.inputs) {
      inputs.push_back(r.Map(v).constant());
      if (v != kNoValue && inputs.back() == nullptr) return std::nullopt;
    }
    if (!budget->Spend(graph, node)) return std::nullopt;
    for (ValueId v : node.outputs) types.push_back(graph.type(v));
    std::vector<Val> results;
    for (HostTensor& tensor : FindOp(node.op)->evaluate({node.attrs, inputs, types})) {
      results.push_back(r.b().Constant(std::move(tensor)));
    }
    return results;
  });
}

}  // namespace onnxtrain
