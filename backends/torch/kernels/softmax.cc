#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

Run Softmax(const Args& a) {
  return [x = a.in[0], y = a.out[0], axis = a.attrs().Int("axis")]() mutable { at::_softmax_out(y, x, axis, false); };
}

Run LogSoftmax(const Args& a) {
  return
      [x = a.in[0], y = a.out[0], axis = a.attrs().Int("axis")]() mutable { at::_log_softmax_out(y, x, axis, false); };
}

Run SoftmaxGrad(const Args& a) {
  return [dy = a.in[0], y = a.in[1], dx = a.out[0], axis = a.attrs().Int("axis")]() mutable {
    at::_softmax_backward_data_out(dx, dy, y, axis, y.scalar_type());
  };
}

Run LogSoftmaxGrad(const Args& a) {
  return [dy = a.in[0], y = a.in[1], dx = a.out[0], axis = a.attrs().Int("axis")]() mutable {
    at::_log_softmax_backward_data_out(dx, dy, y, axis, y.scalar_type());
  };
}

at::Tensor Flat3(const at::Tensor& x) {
  const int64_t rows = x.size(-2), columns = x.size(-1);
  return x.dim() == 3 ? x : x.dim() == 2 ? x.unsqueeze(0) : x.flatten(0, -3).view({-1, rows, columns});
}

at::Tensor HidesAllKeys(const at::Tensor& mask) {
  return (mask.dim() == 0 ? mask : mask.amax(-1, true)).eq(-std::numeric_limits<double>::infinity());
}

// Without a dropout: softmax(s + mask) v, where s = scale q kᵀ, or softcap·tanh(s/softcap); between the products of
// halves, float32. A query without a visible key gets zeros.
Run Attention(const Args& a) {
  const at::Tensor q = Flat3(a.in[0]), k = Flat3(a.in[1]).transpose(1, 2), v = Flat3(a.in[2]);
  std::vector<int64_t> sizes = a.in[0].sizes().vec();
  sizes.back() = a.in[1].size(-2);
  const at::ScalarType wide = v.element_size() < 4 ? at::kFloat : v.scalar_type();
  return [=, y = Flat3(a.out[0]), mask = a.In(3), scale = a.attrs().Float("scale"),
          cap = a.attrs().Float("softcap")]() mutable {
    at::Tensor scores = at::bmm(q, k).to(wide).mul_(scale);
    if (cap != 0) scores.div_(cap).tanh_().mul_(cap);
    if (mask.defined()) scores.view(sizes).add_(mask);
    at::Tensor p = at::_softmax(scores, -1, false);
    if (mask.defined()) p.view(sizes).masked_fill_(HidesAllKeys(mask), 0);
    at::bmm_out(y, p.to(v.scalar_type()), v);
  };
}

}  // namespace

std::span<const NamedKernel> SoftmaxKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Softmax", {Softmax}},         {"LogSoftmax", {LogSoftmax}},
      {"SoftmaxGrad", {SoftmaxGrad}}, {"LogSoftmaxGrad", {LogSoftmaxGrad}},
      {"Attention", {Attention}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
