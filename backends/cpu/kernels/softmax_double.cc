// Softmax and cross entropy over float64, along any axis: plain loops.
#include <algorithm>
#include <cmath>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/axis.h"
#include "backends/cpu/parallel.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kCost = 16;  // of an element, against an addition

template <bool kLog>
void SoftmaxLine(const double* x, double* y, int64_t n, int64_t step) {
  double max = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) max = std::max(max, x[i * step]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i * step] - max);
  const double log = std::log(sum);
  for (int64_t i = 0; i < n; ++i) {
    const double shifted = x[i * step] - max;
    y[i * step] = kLog ? shifted - log : std::exp(shifted) / sum;
  }
}

// Calls f(line, offset of its first element) for all lines along the view's axis.
template <typename F>
void ForLines(const AxisView& x, F f) {
  if (x.n == 0) return;
  Parallel(x.outer * x.inner, x.n * kCost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i, i / x.inner * x.n * x.inner + i % x.inner);
  });
}

template <bool kLog>
absl::StatusOr<Kernel> PrepareSoftmax(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  return Kernel{.run = [=](const Args& args) {
    ForLines(x, [&](int64_t, int64_t first) {
      SoftmaxLine<kLog>(args.in<double>() + first, args.out<double>() + first, x.n, x.inner);
    });
  }};
}

struct Spec {
  int64_t ignored;
  double smoothing;
};

Spec SpecOf(const KernelContext& c) { return {c.attrs().Int("ignore_index"), c.attrs().Float("label_smoothing")}; }

int64_t Class(const AxisView& x, int64_t label) { return std::clamp<int64_t>(label, 0, x.n - 1); }

absl::StatusOr<Kernel> PrepareCrossEntropy(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, 1);
  const Spec s = SpecOf(c);
  return Kernel{.run = [=](const Args& args) {
    ForLines(x, [&](int64_t i, int64_t first) {
      double* log_prob = args.out<double>(1) + first;
      SoftmaxLine<true>(args.in<double>() + first, log_prob, x.n, x.inner);
      const int64_t label = args.in<int64_t>(1)[i];
      double sum = 0;
      for (int64_t k = 0; k < x.n; ++k) sum += log_prob[k * x.inner];
      const double loss = -(1 - s.smoothing) * log_prob[Class(x, label) * x.inner] - s.smoothing * sum / x.n;
      args.out<double>()[i] = label == s.ignored ? 0 : loss;
    });
  }};
}

absl::StatusOr<Kernel> PrepareCrossEntropyGrad(const KernelContext& c) {
  const AxisView x = ViewAround(c.in(1).shape, 1);
  const Spec s = SpecOf(c);
  return Kernel{.run = [=](const Args& args) {
    ForLines(x, [&](int64_t i, int64_t first) {
      const double* log_prob = args.in<double>(1) + first;
      double* dx = args.out<double>() + first;
      const int64_t label = args.in<int64_t>(2)[i];
      const double scale = label == s.ignored ? 0 : args.in<double>()[i];
      for (int64_t k = 0; k < x.n; ++k) {
        const double target = (k == Class(x, label) ? 1 - s.smoothing : 0) + s.smoothing / x.n;
        dx[k * x.inner] = scale == 0 ? 0 : scale * (std::exp(log_prob[k * x.inner]) - target);
      }
    });
  }};
}

}  // namespace

std::span<const KernelRow> DoubleSoftmaxKernels() {
  constexpr TypeSet kLabelled = kDouble | Only(DType::kInt64);
  static constexpr KernelRow kRows[] = {
      {"Softmax", PrepareSoftmax<false>, kDouble},
      {"LogSoftmax", PrepareSoftmax<true>, kDouble},
      {"CrossEntropy", PrepareCrossEntropy, kLabelled},
      {"CrossEntropyGrad", PrepareCrossEntropyGrad, kLabelled},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
