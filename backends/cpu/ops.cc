#include "backends/cpu/ops.h"

#include "backends/cpu/fused.h"
#include "backends/cpu/matmul_ops.h"

namespace onnxtrain::cpu {

void RegisterCpuOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>(MatMulRows());
    all->push_back(FusedRow());
    return all;
  }();
  RegisterOps(*rows);
}

}  // namespace onnxtrain::cpu
