// Cross-entropy over axis 1. Labels are clamped into the classes before they are used as indices.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/scatter_add.h>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

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

// dloss * (softmax - target), target = (1 - smoothing) one_hot + smoothing / classes
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
