#include "backends/cpu/ops/ops.h"

#include "backends/cpu/ops/attention_ops.h"
#include "backends/cpu/ops/fused.h"
#include "backends/cpu/ops/matmul_ops.h"
#include "backends/cpu/ops/nn_ops.h"
#include "backends/cpu/ops/norm_ops.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {

namespace {

absl::StatusOr<std::vector<Type>> GatherGradAddTypes(const TypeContext& c) {
  Attrs attrs = c.attrs;
  ASSIGN_OR_RETURN(auto types, InferTypes("GatherGrad", c.inputs.first(2), attrs));
  if (c.in(2) != types[0]) return Invalid("expected ", ToString(types[0]), " to add to, got ", ToString(c.in(2)));
  return types;
}

// dy, indices, accumulator
OpRow GatherGradAddRow() {
  OpRow row = *FindOp("GatherGrad");
  return {.name = "cpu.GatherGradAdd",
          .inputs = {3, 3},
          .attrs = row.attrs,
          .infer = GatherGradAddTypes,
          .precision = row.precision,
          .recompute = row.recompute,
          .flops = row.flops,
          .overwrites = 1u << 2};
}

OpRow SumSquaresRow() {
  return {.name = "cpu.ReduceSumSquares",
          .attrs = FindOp("ReduceSum")->attrs,
          .infer =
              [](const TypeContext& c) {
                Attrs attrs = c.attrs;
                return InferTypes("ReduceSum", c.inputs, attrs);
              },
          .layout = FindOp("ReduceSum")->layout};
}

}  // namespace

void RegisterCpuOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>(MatMulRows());
    for (OpRow& row : NnRows()) all->push_back(std::move(row));
    for (OpRow& row : AttentionRows()) all->push_back(std::move(row));
    for (OpRow& row : LayerNormRows()) all->push_back(std::move(row));
    all->push_back(FusedRow());
    all->push_back(SumSquaresRow());
    all->push_back(GatherGradAddRow());
    return all;
  }();
  RegisterOps(*rows);
}

}  // namespace onnxtrain::cpu
