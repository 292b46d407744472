// Computes Softmax, LogSoftmax and their gradients along the last axis; lower/legalize.cc transposes other axes.
#include "backends/cpu/kernels/row_functions.h"

#include <iterator>
#include <type_traits>
#include <vector>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/softmax-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/softmax-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(SoftmaxTableF32);
HWY_EXPORT(SoftmaxTableF64);

template <>
const SoftmaxSimd<float>& GetSoftmaxSimd() {
  return HWY_DYNAMIC_DISPATCH(SoftmaxTableF32)();
}
template <>
const SoftmaxSimd<double>& GetSoftmaxSimd() {
  return HWY_DYNAMIC_DISPATCH(SoftmaxTableF64)();
}

namespace {

constexpr int64_t kCost = 16;  // additions per element

bool IsInnermostAxis(const KernelContext& c) { return ViewAround(c.in().shape, c.attrs().Int("axis")).inner == 1; }

// Inputs are x, or dy and y. kMember is a member of SoftmaxSimd<T>.
template <typename T, auto kMember>
absl::StatusOr<Kernel> PrepareLines(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const auto function = GetSoftmaxSimd<T>().*kMember;
  return Kernel{.run = [=](const Args& args) {
    Parallel(x.outer, x.n * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* y = args.out<T>() + i * x.n;
        if constexpr (std::is_invocable_v<decltype(function), const T*, T*, int64_t>) {
          function(args.in<T>() + i * x.n, y, x.n);
        } else {
          function(args.in<T>(0) + i * x.n, args.in<T>(1) + i * x.n, y, x.n);
        }
      }
    });
  }};
}

template <typename T>
constexpr KernelRow kRowsOf[] = {
    {"Softmax", PrepareLines<T, &SoftmaxSimd<T>::softmax>, kTypeOf<T>, IsInnermostAxis},
    {"LogSoftmax", PrepareLines<T, &SoftmaxSimd<T>::log_softmax>, kTypeOf<T>, IsInnermostAxis},
    {"SoftmaxGrad", PrepareLines<T, &SoftmaxSimd<T>::softmax_grad>, kTypeOf<T>, IsInnermostAxis},
    {"LogSoftmaxGrad", PrepareLines<T, &SoftmaxSimd<T>::log_softmax_grad>, kTypeOf<T>, IsInnermostAxis},
};

}  // namespace

std::span<const KernelRow> SoftmaxKernels() {
  static const auto* rows = [] {
    auto* all = new std::vector<KernelRow>(std::begin(kRowsOf<float>), std::end(kRowsOf<float>));
    all->insert(all->end(), std::begin(kRowsOf<double>), std::end(kRowsOf<double>));
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain::cpu
