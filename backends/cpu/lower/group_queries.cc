// Lets the query heads that share keys be rows of one product.
#include "backends/cpu/lower/passes.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

// Returns the heads x [B,G,T,D] if the value [B,G·R,T,D] repeats each of them R ≥ 2 times in succession, else kNoValue.
ValueId FindRepeatedHeads(const Pattern& pattern, ValueId v) {
  const Graph& graph = pattern.graph();
  const Shape& all = graph.type(v).shape;
  const Node* merge = pattern.Producer(v, "Reshape");
  const Node* expand = merge == nullptr ? nullptr : pattern.Producer(merge->inputs[0], "Expand");
  const Node* split = expand == nullptr ? nullptr : pattern.Producer(expand->inputs[0], "Reshape");
  if (split == nullptr || all.size() != 4) return kNoValue;
  const Shape &heads = graph.type(split->inputs[0]).shape, &wide = graph.type(expand->outputs[0]).shape;
  if (heads.size() != 4 || heads[1] < 1 || all[1] % heads[1] != 0) return kNoValue;
  const int64_t times = all[1] / heads[1];
  const bool repeats = graph.type(expand->inputs[0]).shape == Shape{heads[0], heads[1], 1, heads[2], heads[3]} &&
                       wide == Shape{heads[0], heads[1], times, heads[2], heads[3]} &&
                       all == Shape{heads[0], heads[1] * times, heads[2], heads[3]};
  return repeats && times > 1 ? split->inputs[0] : kNoValue;
}

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
    const Val q = operands[0], k = r.Map(heads->k), v = r.Map(heads->v);
    operands[0] = Reshape(q, {q.dim(0), k.dim(1), q.dim(1) / k.dim(1), q.dim(3)});
    operands[1] = k;
    operands[2] = v;
    const Val y = r.b().Op(node.op, operands, node.attrs);
    return std::vector<Val>{Reshape(y, {q.dim(0), q.dim(1), 1, v.dim(3)})};
  });
}

}  // namespace onnxtrain::cpu
