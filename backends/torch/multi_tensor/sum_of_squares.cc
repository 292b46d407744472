#include "backends/torch/multi_tensor/sum_of_squares.h"

#include <optional>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

absl::StatusOr<std::vector<Type>> InferSum(const TypeContext& c) {
  for (size_t i = 0; i < c.inputs.size(); ++i) RETURN_IF_ERROR(RequireFloat(c, i));
  return std::vector<Type>{{DType::kFloat64, {}}};
}

double CountFlops(std::span<const Type* const> in, std::span<const Type>, const Attrs&) {
  double flops = 0;
  for (const Type* type : in) flops += 2 * static_cast<double>(type->elements());
  return flops;
}

bool IsSum(const Graph& graph, const Node& node) {
  return node.op == "Add" && graph.type(node.outputs[0]) == Type{DType::kFloat64, {}};
}

struct Terms {
  std::vector<ValueId> squared, others;
};

// The terms of a sum of sums that nothing else reads.
Terms FindTerms(const Pattern& pattern, const Node& root) {
  Terms terms;
  std::vector<const Node*> sums = {&root};
  while (!sums.empty()) {
    const Node& sum = *sums.back();
    sums.pop_back();
    for (ValueId v : sum.inputs) {
      const Node* producer = pattern.HasOneUse(v) && !pattern.IsOutput(v) ? pattern.graph().producer(v) : nullptr;
      if (producer != nullptr && IsSum(pattern.graph(), *producer)) {
        sums.push_back(producer);
      } else if (producer != nullptr && producer->op == "SquaredNorm") {
        terms.squared.push_back(producer->inputs[0]);
      } else if (pattern.Splat(v) != 0) {
        terms.others.push_back(v);
      }
    }
  }
  return terms;
}

}  // namespace

void RegisterSumOfSquares() {
  static const auto* rows = new std::vector<OpRow>{{.name = kSumOfSquares,
                                                    .inputs = {1, Arity::kMany},
                                                    .infer = InferSum,
                                                    .precision = Precision::kFloat32,
                                                    .flops = CountFlops}};
  RegisterOps(*rows);
}

absl::StatusOr<Graph> FuseSumsOfSquares(const Graph& graph) {
  RegisterSumOfSquares();
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!IsSum(graph, node)) return std::nullopt;
    const Node* user = pattern.SoleUser(node.outputs[0], "Add");
    if (user != nullptr && IsSum(graph, *user)) return std::nullopt;  // a part of a larger sum
    const Terms terms = FindTerms(pattern, node);
    if (terms.squared.size() < 2) return std::nullopt;
    std::vector<Val> operands;
    for (ValueId v : terms.squared) operands.push_back(r.Map(v));
    Val sum = r.b().Op(kSumOfSquares, operands);
    for (ValueId v : terms.others) sum = sum + r.Map(v);
    return std::vector<Val>{sum};
  });
}

}  // namespace onnxtrain::aten
