#include "backends/cpu/accumulate.h"

#include "frontend/base/status.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::cpu {
namespace {

bool IsPlainSum(const Graph& graph, const Node& node) {
  const Type& type = graph.type(node.outputs[0]);
  return node.op == "Add" && type.dtype == DType::kFloat32 && graph.type(node.inputs[0]) == type && graph.type(node.inputs[1]) == type;
}

absl::StatusOr<std::vector<Type>> GatherGradAddTypes(const TypeContext& c) {
  Attrs attrs = c.attrs;
  ASSIGN_OR_RETURN(auto types, InferTypes("GatherGrad", c.inputs.first(2), attrs));
  if (c.in(2) != types[0]) return Invalid("expected ", ToString(types[0]), " to add to, got ", ToString(c.in(2)));
  return types;
}

// A gradient of a table and what it is added to.
struct GatherSum {
  const Node* grad = nullptr;
  ValueId old = kNoValue;
};

std::optional<GatherSum> GatherSumOf(const Pattern& pattern, const Node& node) {
  if (!IsPlainSum(pattern.graph(), node)) return std::nullopt;
  for (int side : {0, 1}) {
    const ValueId term = node.inputs[side], old = node.inputs[1 - side];
    const Node* grad = pattern.HasOneReader(term) ? pattern.Producer(term, "GatherGrad") : nullptr;
    if (grad != nullptr && pattern.HasOneReader(old) && pattern.graph().producer(old) != nullptr) return GatherSum{grad, old};
  }
  return std::nullopt;
}

}  // namespace

std::map<ValueId, Accumulation> FindAccumulations(const Graph& graph) {
  const Pattern pattern(graph);
  std::map<ValueId, Accumulation> found;
  for (const GraphOutput& output : graph.outputs()) {
    const Node* sum = graph.producer(output.value);
    if (output.into == kNoValue || sum == nullptr || !IsPlainSum(graph, *sum)) continue;
    const ValueId old = output.into, term = sum->inputs[sum->inputs[0] == old ? 1 : 0];
    const bool alone = pattern.HasOneReader(old) && pattern.HasOneReader(term) && graph.producer(term) != nullptr;
    if (alone && (sum->inputs[0] == old || sum->inputs[1] == old)) found[output.value] = {old, term};
  }
  return found;
}

OpRow GatherGradAddRow() {
  OpRow row = *FindOp("GatherGrad");
  return {.name = "cpu.GatherGradAdd", .inputs = {3, 3}, .attrs = row.attrs, .infer = GatherGradAddTypes, .precision = row.precision,
          .recompute = row.recompute, .flops = row.flops, .overwrites = 1u << 2};
}

absl::StatusOr<Graph> FuseGatherGrads(const Graph& graph) {
  const Pattern pattern(graph);
  const auto sums = FindAccumulations(graph);
  std::map<ValueId, ValueId> old_of;  // by term
  for (const auto& [sum, accumulation] : sums) old_of[accumulation.term] = accumulation.old;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    const auto add = [&](const Node& grad, ValueId old) {
      return std::vector<Val>{r.b().Op("cpu.GatherGradAdd", {r.Map(grad.inputs[0]), r.Map(grad.inputs[1]), r.Map(old)}, grad.attrs)};
    };
    // Where the gradient stood, not at the end with the sums: its operands are needed no longer than before.
    if (const auto old = old_of.find(node.outputs[0]); node.op == "GatherGrad" && old != old_of.end()) return add(node, old->second);
    if (const auto it = sums.find(node.outputs[0]); it != sums.end()) {
      const bool done = pattern.Producer(it->second.term, "GatherGrad") != nullptr;
      return done ? std::optional(std::vector<Val>{r.Map(it->second.term)}) : std::nullopt;
    }
    const auto sum = GatherSumOf(pattern, node);
    return sum ? std::optional(add(*sum->grad, sum->old)) : std::nullopt;
  });
}

}  // namespace onnxtrain::cpu
