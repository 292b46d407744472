// Gather and its gradient. Negative indices count from the end; indices out of range are clamped, since they come from
// user data and must not access foreign memory.
#include <ATen/ops/gather.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/where.h>

#include "backends/torch/kernel.h"
#include "backends/torch/kernels/index.h"

namespace onnxtrain::aten {

at::Tensor SafeIndex(const at::Tensor& index, int64_t n) {
  const at::Tensor wide = index.to(at::kLong);
  return at::where(wide.lt(0), wide + n, wide).clamp_(0, n - 1);
}

namespace {

// The axis' part of `whole` (an extent n) replaced by as many elements as the index has.
std::vector<int64_t> SelectedSizes(const at::Tensor& whole, int64_t axis, const at::Tensor& index) {
  std::vector<int64_t> sizes = whole.sizes().vec();
  sizes[axis] = index.numel();
  return sizes;
}

Run Gather(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.in[0].size(axis);
  return [=, y = a.out[0].view(SelectedSizes(a.in[0], axis, a.in[1])), x = a.in[0],
          index = a.in[1].flatten()]() mutable { at::index_select_out(y, x, axis, SafeIndex(index, n)); };
}

Run GatherGrad(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.out[0].size(axis);
  const at::Tensor dy = a.in[0].view(SelectedSizes(a.out[0], axis, a.in[1]));
  return [=, index = a.in[1].flatten(), dx = a.out[0]] {
    dx.zero_();
    dx.index_add_(axis, SafeIndex(index, n), dy);
  };
}

Run GatherElements(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.in[0].size(axis);
  return [=, x = a.in[0], index = a.in[1], y = a.out[0]]() mutable { at::gather_out(y, x, axis, SafeIndex(index, n)); };
}

Run GatherElementsGrad(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.out[0].size(axis);
  return [=, dy = a.in[0], index = a.in[1], dx = a.out[0]] {
    dx.zero_();
    dx.scatter_add_(axis, SafeIndex(index, n), dy);
  };
}

}  // namespace

std::span<const NamedKernel> IndexKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Gather", {Gather, Types::kAny}},
      {"GatherGrad", {GatherGrad, Types::kNumber}},
      {"GatherElements", {GatherElements, Types::kAny}},
      {"GatherElementsGrad", {GatherElementsGrad, Types::kNumber}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
