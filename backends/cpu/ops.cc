#include "backends/cpu/ops.h"

#include "backends/cpu/fused.h"

namespace onnxtrain::cpu {

void RegisterCpuOps() {
  static const auto* rows = new std::vector<OpRow>{FusedRow()};
  RegisterOps(*rows);
}

}  // namespace onnxtrain::cpu
