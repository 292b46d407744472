#include "backends/cpu/ops.h"

#include "backends/cpu/accumulate.h"
#include "backends/cpu/attention_ops.h"
#include "backends/cpu/channels_last_ops.h"
#include "backends/cpu/fused.h"
#include "backends/cpu/matmul_ops.h"
#include "backends/cpu/norm_ops.h"

namespace onnxtrain::cpu {

namespace {

OpRow SumSquaresRow() {
  return {.name = "cpu.ReduceSumSquares", .attrs = {{"axes", std::vector<int64_t>()}, {"keepdims", int64_t{1}}},
          .infer = [](const TypeContext& c) {
            Attrs attrs = c.attrs;
            return InferTypes("ReduceSum", c.inputs, attrs);
          }};
}

}  // namespace

void RegisterCpuOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>(MatMulRows());
    for (OpRow& row : ChannelsLastRows()) all->push_back(std::move(row));
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
