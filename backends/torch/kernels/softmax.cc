#include <limits>

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/softmax.h>
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

// Computes attention without dropout: softmax(s + mask) v, where s = scale q kᵀ, or softcap·tanh(s/softcap). With half
// precision, s and the softmax are float32. A query without a visible key gets zeros.
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

namespace {

// Attributes of cross-entropy, over class axis 1. Labels are clamped to the classes before they are used as indices.
struct Targets {
  int64_t ignore_index;
  double smoothing;

  explicit Targets(const Attrs& attrs)
      : ignore_index(attrs.Int("ignore_index")), smoothing(attrs.Float("label_smoothing")) {}

  at::Tensor Ignored(const at::Tensor& labels) const { return labels.eq(ignore_index); }
  static at::Tensor Index(const at::Tensor& labels, int64_t classes) {
    return labels.clamp(0, classes - 1).unsqueeze(1);
  }
};

Run CrossEntropy(const Args& a) {
  return [x = a.in[0], labels = a.in[1], loss = a.out[0], log_prob = a.Out(1), t = Targets(a.attrs())]() mutable {
    at::_log_softmax_out(log_prob, x, 1, false);
    at::Tensor nll = log_prob.gather(1, t.Index(labels, x.size(1))).squeeze(1).neg_();
    if (t.smoothing != 0) nll.mul_(1 - t.smoothing).sub_(log_prob.mean(1), t.smoothing);
    loss.copy_(nll.masked_fill_(t.Ignored(labels), 0));
  };
}

// Computes dloss * (softmax - target), where target = (1 - smoothing) one_hot + smoothing / classes.
Run CrossEntropyGrad(const Args& a) {
  return [dloss = a.in[0], log_prob = a.in[1], labels = a.in[2], dx = a.out[0], t = Targets(a.attrs())]() mutable {
    const at::Tensor index = t.Index(labels, log_prob.size(1));
    const at::Tensor g = dloss.masked_fill(t.Ignored(labels), 0).unsqueeze(1);
    at::exp_out(dx, log_prob);
    if (t.smoothing != 0) dx.sub_(t.smoothing / static_cast<double>(log_prob.size(1)));
    dx.mul_(g);
    dx.scatter_add_(1, index, g * (t.smoothing - 1));
  };
}

}  // namespace

std::span<const NamedKernel> LossKernels() {
  static constexpr NamedKernel kKernels[] = {{"CrossEntropy", {CrossEntropy, Types::kNumber}},
                                             {"CrossEntropyGrad", {CrossEntropyGrad, Types::kNumber}}};
  return kKernels;
}

}  // namespace onnxtrain::aten
