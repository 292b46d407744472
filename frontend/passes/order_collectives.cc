#include "frontend/passes/order_collectives.h"

#include <algorithm>

#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

bool IsCollective(const Node& node) { return FindOp(node.op)->collective; }

}  // namespace

bool HasCollectives(const Graph& graph) { return std::ranges::any_of(graph.nodes(), IsCollective); }

absl::StatusOr<Graph> OrderCollectives(const Graph& graph) {
  Val token;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!IsCollective(node)) return std::nullopt;
    std::vector<Val> inputs = {r.Map(node.inputs[0])};
    if (token) inputs.push_back(token);
    std::vector<Val> outputs = r.b().Ops(node.op, inputs, node.attrs);
    token = outputs[1];
    return outputs;
  });
}

}  // namespace onnxtrain
