// Softmax and its kin along the last axis; legalize.cc brings other axes there.
#include "backends/cpu/kernels/softmax.h"

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/axis.h"
#include "backends/cpu/parallel.h"

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/softmax.leaf.inc"
#include "hwy/foreach_target.h"
#include "backends/cpu/kernels/softmax.leaf.inc"

namespace onnxtrain::cpu {

HWY_EXPORT(SoftmaxTable);

const SoftmaxLeaf& Softmaxes() { return HWY_DYNAMIC_DISPATCH(SoftmaxTable)(); }

namespace {

constexpr int64_t kCost = 16;  // of an element, against an addition

bool AlongLastAxis(const KernelContext& c) { return ViewAround(c.in().shape, c.attrs().Int("axis")).inner == 1; }

using LineFunction = void (*SoftmaxLeaf::*)(const float*, float*, int64_t);
using GradFunction = void (*SoftmaxLeaf::*)(const float*, const float*, float*, int64_t);

template <LineFunction kFunction>
absl::StatusOr<Kernel> PrepareLines(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const auto function = Softmaxes().*kFunction;
  return Kernel{.run = [=](const Args& args) {
    Parallel(x.outer, x.n * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) function(args.in() + i * x.n, args.out() + i * x.n, x.n);
    });
  }};
}

template <GradFunction kFunction>
absl::StatusOr<Kernel> PrepareGradLines(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const auto function = Softmaxes().*kFunction;
  return Kernel{.run = [=](const Args& args) {
    Parallel(x.outer, x.n * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        function(args.in(0) + i * x.n, args.in(1) + i * x.n, args.out() + i * x.n, x.n);
      }
    });
  }};
}

}  // namespace

std::span<const KernelRow> SoftmaxKernels() {
  static constexpr KernelRow kRows[] = {
      {"Softmax", PrepareLines<&SoftmaxLeaf::softmax>, kFloat, AlongLastAxis},
      {"LogSoftmax", PrepareLines<&SoftmaxLeaf::log_softmax>, kFloat, AlongLastAxis},
      {"SoftmaxGrad", PrepareGradLines<&SoftmaxLeaf::softmax_grad>, kFloat, AlongLastAxis},
      {"LogSoftmaxGrad", PrepareGradLines<&SoftmaxLeaf::log_softmax_grad>, kFloat, AlongLastAxis},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
