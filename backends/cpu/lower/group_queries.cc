// Lets the query heads that share keys be rows of one product.
#include "backends/cpu/lower/passes.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

struct GroupedHeads {
  ValueId k, v;
};

std::optional<GroupedHeads> FindGroups(const Pattern& pattern, const Node& node) {
  const Graph& graph = pattern.graph();
  constexpr size_t kMask = 3;
  if (!HasOneQuery(graph, node) || (node.inputs.size() > kMask + 1 && node.inputs[kMask + 1] != kNoValue)) return {};
  const Shape mask =
      node.inputs.size() > kMask && node.inputs[kMask] != kNoValue ? graph.type(node.inputs[kMask]).shape : Shape();
  const bool by_head = mask.size() > 2 && mask[mask.size() - 3] != 1;
  if (by_head) return {};
  const GroupedHeads heads = {FindRepeatedHeads(pattern, node.inputs[1]), FindRepeatedHeads(pattern, node.inputs[2])};
  if (heads.k == kNoValue || heads.v == kNoValue) return {};
  return graph.type(heads.k).shape[1] == graph.type(heads.v).shape[1] ? std::optional(heads) : std::nullopt;
}

}  // namespace

absl::StatusOr<Graph> GroupQueries(const Graph& graph) {
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    const std::optional<GroupedHeads> heads = FindGroups(pattern, node);
    if (!heads) return std::nullopt;
    std::vector<Val> operands = r.MapOperands(node);
    const auto unrepeated = [&](ValueId x) {
      const Shape& shape = graph.type(x).shape;
      return Reshape(r.Map(x), {shape[0], shape[1], shape[3], shape[4]});
    };
    const Val q = operands[0], k = unrepeated(heads->k), v = unrepeated(heads->v);
    operands[0] = Reshape(q, {q.dim(0), k.dim(1), q.dim(1) / k.dim(1), q.dim(3)});
    operands[1] = k;
    operands[2] = v;
    const Val y = r.b().Op(node.op, operands, node.attrs);
    return std::vector<Val>{Reshape(y, {q.dim(0), q.dim(1), 1, v.dim(3)})};
  });
}

}  // namespace onnxtrain::cpu
