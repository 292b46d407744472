#include "backends/torch/products/wide_matmul.h"

#include <optional>

#include "backends/promote_types.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

absl::StatusOr<std::vector<Type>> InferWideProduct(const TypeContext& c) {
  Attrs attrs = c.attrs;
  ASSIGN_OR_RETURN(std::vector<Type> types, InferTypes("MatMul", c.inputs, attrs));
  types[0].dtype = DType::kFloat32;
  return types;
}

double CountFlops(std::span<const Type* const> in, std::span<const Type> out, const Attrs& attrs) {
  return FindOp("MatMul")->flops(in, out, attrs);
}

}  // namespace

void RegisterWideMatMul() {
  static const auto* rows = new std::vector<OpRow>{{.name = kWideMatMul,
                                                    .inputs = {2, 2},
                                                    .attrs = {{"trans_a", int64_t{0}}, {"trans_b", int64_t{0}}},
                                                    .infer = InferWideProduct,
                                                    .precision = Precision::kLow,
                                                    .recompute = Recompute::kExpensive,
                                                    .flops = CountFlops}};
  RegisterOps(*rows);
}

absl::StatusOr<Graph> WidenProducts(const Graph& graph, std::vector<ValueId>* values) {
  RegisterWideMatMul();
  const Pattern pattern(graph);
  const auto widen = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.op != "Cast" || graph.type(node.outputs[0]).dtype != DType::kFloat32) return std::nullopt;
    const ValueId product = node.inputs[0];
    const Type& type = graph.type(product);
    const Node* matmul = pattern.Producer(product, "MatMul");
    const bool takes = matmul != nullptr && IsHalf(type.dtype) && type.rank() == 2 && pattern.HasOneUse(product) &&
                       graph.type(matmul->inputs[0]).rank() == 2 && graph.type(matmul->inputs[1]).rank() == 2;
    if (!takes) return std::nullopt;
    return std::vector<Val>{r.b().Op(kWideMatMul, r.MapOperands(*matmul), matmul->attrs)};
  };
  return Rewrite(graph, widen, nullptr, values);
}

}  // namespace onnxtrain::aten
