#include <limits>
#include <map>
#include <numeric>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "backends/torch/multi_tensor/multi_tensor.h"

namespace onnxtrain::aten {
namespace {

std::vector<int64_t> ReducedAxes(const Args& a) {
  std::vector<int64_t> axes = a.attrs().Ints("axes");
  if (axes.empty()) {
    axes.resize(a.in[0].dim());
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

// Returns true for a scalar, which is copied: its list of axes is empty, and ATen treats an empty list as all axes.
bool IsScalar(const Args& a) { return a.in[0].dim() == 0; }

Run Copy(const Args& a) {
  return [x = a.in[0], y = a.out[0]] { y.copy_(x); };
}

Run Sum(const Args& a) {
  if (IsScalar(a)) return Copy(a);
  return [x = a.in[0], y = a.out[0], axes = ReducedAxes(a), keep = a.attrs().Int("keepdims") != 0]() mutable {
    at::sum_out(y, x, axes, keep, y.scalar_type());
  };
}

Run Mean(const Args& a) {
  if (IsScalar(a)) return Copy(a);
  return [x = a.in[0], y = a.out[0], axes = ReducedAxes(a), keep = a.attrs().Int("keepdims") != 0]() mutable {
    at::mean_out(y, x, axes, keep);
  };
}

using ExtremeOut = at::Tensor& (*)(at::Tensor&, const at::Tensor&, at::IntArrayRef, bool);

template <ExtremeOut F>
Run Extreme(const Args& a) {
  if (IsScalar(a)) return Copy(a);
  // The extreme of no elements is infinite; type inference admits only floats.
  const double weakest = std::numeric_limits<double>::infinity() * (F == ExtremeOut(at::amax_out) ? -1 : 1);
  if (a.in[0].numel() == 0) return [=, y = a.out[0]] { y.fill_(weakest); };
  return [x = a.in[0], y = a.out[0], axes = ReducedAxes(a), keep = a.attrs().Int("keepdims") != 0]() mutable {
    F(y, x, axes, keep);
  };
}

// Reduces one axis at a time, as ATen's prod does.
Run Prod(const Args& a) {
  return [x = a.in[0], y = a.out[0], axes = ReducedAxes(a)] {
    at::Tensor product = x;
    for (int64_t axis : axes) product = at::prod(product, axis, /*keepdim=*/true, y.scalar_type());
    y.copy_(product.view(y.sizes()));
  };
}

// Elements that AddSquares, which computes y + Σx² on the CPU, converts to float64 at a time, few enough for the cache.
// ATen's norm in float64 would convert all of x first.
constexpr int64_t kPart = 1 << 18;

void AddSquares(const at::Tensor& x, at::Tensor& y) {
  for (const at::Tensor& part : x.view({-1}).split(kPart)) {
    const at::Tensor wide = part.to(at::kDouble);
    y.add_(at::dot(wide, wide));
  }
}

Run SquaredNorm(const Args& a) {
  if (!a.in[0].is_cpu()) {
    return [x = a.in[0], y = a.out[0]]() mutable {
      at::linalg_vector_norm_out(y, x, 2, at::OptionalIntArrayRef(), /*keepdim=*/false, at::kDouble);
      y.square_();
    };
  }
  return [x = a.in[0], y = a.out[0]]() mutable {
    y.zero_();
    AddSquares(x, y);
  };
}

// On a GPU, computes the norms of all tensors of one type in few launches.
Run SumOfSquares(const Args& a) {
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& x : a.in)
    if (x.numel() > 0) by_type[x.scalar_type()].push_back(x);
  return [=, y = a.out[0]]() mutable {
    y.zero_();
    for (const auto& [type, tensors] : by_type) {
#if ONNXTRAIN_TORCH2
      if (y.is_cuda()) {
        y.add_(at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).square_().sum());
        continue;
      }
#endif
      for (const at::Tensor& x : tensors) AddSquares(x, y);
    }
  };
}

using ArgOut = at::Tensor& (*)(const at::Tensor& x, int64_t axis, bool keep, at::Tensor& y);

at::Tensor& ArgMaxOut(const at::Tensor& x, int64_t axis, bool keep, at::Tensor& y) {
  return at::argmax_out(y, x, axis, keep);
}
at::Tensor& ArgMinOut(const at::Tensor& x, int64_t axis, bool keep, at::Tensor& y) {
  return at::argmin_out(y, x, axis, keep);
}

// Returns the first of equal elements, as ATen does, or the last one, which is the first of the flipped tensor.
template <ArgOut F>
Run Arg(const Args& a) {
  const int64_t axis = a.attrs().Int("axis");
  const bool keep = a.attrs().Int("keepdims") != 0;
  if (a.attrs().Int("select_last_index") == 0) {
    return [=, x = a.in[0], y = a.out[0]]() mutable { F(x, axis, keep, y); };
  }
  return [=, x = a.in[0], y = a.out[0]]() mutable {
    F(at::flip(x, {axis}), axis, keep, y);
    y.neg_().add_(x.size(axis) - 1);
  };
}

// Computes an exclusive sum as the shifted inclusive sum, because subtracting x from a sum gives NaN after an infinity.
Run CumSum(const Args& a) {
  const int64_t axis = a.attrs().Int("axis");
  const bool exclusive = a.attrs().Int("exclusive") != 0, reverse = a.attrs().Int("reverse") != 0;
  return [=, x = a.in[0], y = a.out[0]] {
    const int64_t n = x.size(axis), kept = n - (exclusive && n > 0 ? 1 : 0);
    at::Tensor part = reverse ? at::flip(x, {axis}) : x;
    at::Tensor sum = at::cumsum(part.narrow(axis, 0, kept), axis, y.scalar_type());
    if (reverse) sum = at::flip(sum, {axis});
    const int64_t at_start = reverse ? 0 : n - kept;
    if (kept < n) y.narrow(axis, reverse ? kept : 0, n - kept).zero_();
    y.narrow(axis, at_start, kept).copy_(sum);
  };
}

}  // namespace

std::span<const NamedKernel> ReduceKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"ReduceSum", {Sum, Types::kNumber}},
      {"ReduceMean", {Mean}},
      {"ReduceMax", {Extreme<at::amax_out>, Types::kNative}},
      {"ReduceMin", {Extreme<at::amin_out>, Types::kNative}},
      {"ReduceProd", {Prod, Types::kNumber}},
      {"ArgMax", {Arg<ArgMaxOut>, Types::kNumber}},
      {"ArgMin", {Arg<ArgMinOut>, Types::kNumber}},
      {"SquaredNorm", {SquaredNorm}},
      {kSumOfSquares, {SumOfSquares}},
      {"CumSum", {CumSum, Types::kNumber}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
