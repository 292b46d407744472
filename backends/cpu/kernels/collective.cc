// Prepares collective operators, which run on the group of ranks that the program is bound to.
#include "frontend/ops/collective.h"
#include "backends/collective_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/kernel_table.h"

namespace onnxtrain::cpu {
namespace {

absl::StatusOr<Kernel> PrepareCollective(const KernelContext& c) {
  const CollectiveCall call(c.node, c.in(), c.out(), true);
  return Kernel{.run =
                    [call](const Args& args) {
                      const absl::Status status = call.Run(args.ranks, args.in<>(), args.out<>(), args.workspace);
                      if (!status.ok()) throw KernelFailure(status);
                      if (args.outputs[1] != nullptr) *args.out<uint8_t>(1) = 0;
                    },
                .workspace = call.workspace()};
}

// Returns true for types that are summed directly; others are cast to float32.
bool SumsReals(const KernelContext& c) {
  const DType dtype = c.in().dtype;
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt64;
}

}  // namespace

std::span<const KernelRow> CollectiveKernels() {
  static constexpr KernelRow kRows[] = {
      {"AllReduce", PrepareCollective, kAnyType, SumsReals},
      {"AllGather", PrepareCollective, kAnyType},
      {kAwaitGather, PrepareCollective, kAnyType},
      {"ReduceScatter", PrepareCollective, kAnyType, SumsReals},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
