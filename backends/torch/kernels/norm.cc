#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

// Copies a result to an output unless the output is unused.
void Store(const at::Tensor& to, const at::Tensor& from) {
  if (to.defined()) to.copy_(from.view(to.sizes()));
}

using Maybe = Optional<at::Tensor>;

Maybe MakeOptional(const at::Tensor& x) { return x.defined() ? Maybe(x) : Maybe(); }

Run BatchNorm(const Args& a) {
  return [x = a.in[0], scale = a.in[1], bias = a.in[2], y = a.out[0], mean = a.out[1], rstd = a.out[2],
          epsilon = a.attrs().Float("epsilon")] {
    const auto [y_, mean_, rstd_] = at::native_batch_norm(x, scale, bias, {}, {}, /*training=*/true, 0, epsilon);
    Store(y, y_);
    Store(mean, mean_);
    Store(rstd, rstd_);
  };
}

// Widens half-precision statistics, because ATen's GPU kernels read them in float32.
at::Tensor WidenStatistic(const at::Tensor& x) { return x.is_cuda() && x.element_size() == 2 ? x.to(at::kFloat) : x; }

Run BatchNormGrad(const Args& a) {
  return [in = a.in, out = a.out] {
    // In training mode the kernel reads rstd and does not use epsilon.
    const auto [dx, dscale, dbias] =
        at::native_batch_norm_backward(in[0], in[1], in[2], {}, {}, WidenStatistic(in[3]), WidenStatistic(in[4]),
                                       /*train=*/true, 0, {out[0].defined(), out[1].defined(), out[2].defined()});
    if (out[0].defined()) Store(out[0], dx);
    if (out[1].defined()) Store(out[1], dscale);
    if (out[2].defined()) Store(out[2], dbias);
  };
}

Run BatchNormInference(const Args& a) {
  return [in = a.in, y = a.out[0], epsilon = a.attrs().Float("epsilon")] {
    y.copy_(std::get<0>(at::native_batch_norm(in[0], in[1], in[2], in[3], in[4], /*training=*/false, 0, epsilon)));
  };
}

std::vector<int64_t> NormalizedShape(const Args& a, const at::Tensor& x) {
  return x.sizes().slice(a.attrs().Int("axis")).vec();
}

Run LayerNorm(const Args& a) {
  return [x = a.in[0], scale = a.in[1], bias = MakeOptional(a.In(2)), y = a.out[0], mean = a.out[1], rstd = a.out[2],
          shape = NormalizedShape(a, a.in[0]), epsilon = a.attrs().Float("epsilon")] {
    const auto [y_, mean_, rstd_] = at::native_layer_norm(x, shape, scale, bias, epsilon);
    Store(y, y_);
    Store(mean, mean_);
    Store(rstd, rstd_);
  };
}

Run LayerNormGrad(const Args& a) {
  return [in = a.in, out = a.out, shape = NormalizedShape(a, a.in[1])] {
    // The kernel reads only the shape of the bias, so the scale is passed instead.
    const auto [dx, dscale, dbias] =
        at::native_layer_norm_backward(in[0], in[1], shape, WidenStatistic(in[3]), WidenStatistic(in[4]), in[2], in[2],
                                       {out[0].defined(), out[1].defined(), out[2].defined()});
    if (out[0].defined()) Store(out[0], dx);
    if (out[1].defined()) Store(out[1], dscale);
    if (out[2].defined()) Store(out[2], dbias);
  };
}

}  // namespace

std::span<const NamedKernel> NormKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"BatchNorm", {BatchNorm}}, {"BatchNormGrad", {BatchNormGrad}}, {"BatchNormInference", {BatchNormInference}},
      {"LayerNorm", {LayerNorm}}, {"LayerNormGrad", {LayerNormGrad}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
