// Computes cross entropy over the last axis of logits [N,C]; lower/legalize.cc rewrites other shapes.
#include <algorithm>

#include "backends/cpu/kernels/row_functions.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kCost = 16;  // additions per element

bool IsMatrix(const KernelContext& c) { return c.in(c.node.op == "CrossEntropy" ? 0 : 1).rank() == 2; }

template <typename T>
struct Spec {
  int64_t samples, classes, ignored;
  T smoothing;

  Spec(const KernelContext& c, const Shape& logits)
      : samples(logits[0]),
        classes(logits[1]),
        ignored(c.attrs().Int("ignore_index")),
        smoothing(static_cast<T>(c.attrs().Float("label_smoothing"))) {}

  int64_t Class(int64_t label) const { return std::clamp<int64_t>(label, 0, classes - 1); }
};

template <typename T>
absl::StatusOr<Kernel> PrepareCrossEntropy(const KernelContext& c) {
  const Spec<T> s(c, c.in().shape);
  const SoftmaxSimd<T>& simd = GetSoftmaxSimd<T>();
  return Kernel{.run = [s, &simd](const Args& args) {
    Parallel(s.samples, s.classes * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* log_prob = args.out<T>(1) + i * s.classes;
        simd.log_softmax(args.in<T>() + i * s.classes, log_prob, s.classes);
        const int64_t label = args.in<int64_t>(1)[i];
        T loss = -(1 - s.smoothing) * log_prob[s.Class(label)];
        if (s.smoothing > 0) loss -= s.smoothing * static_cast<T>(simd.sum(log_prob, s.classes) / s.classes);
        args.out<T>()[i] = label == s.ignored ? 0 : loss;
      }
    });
  }};
}

template <typename T>
absl::StatusOr<Kernel> PrepareCrossEntropyGrad(const KernelContext& c) {
  const Spec<T> s(c, c.in(1).shape);
  const SoftmaxSimd<T>& simd = GetSoftmaxSimd<T>();
  return Kernel{.run = [s, &simd](const Args& args) {
    Parallel(s.samples, s.classes * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* dx = args.out<T>() + i * s.classes;
        const int64_t label = args.in<int64_t>(2)[i];
        const T scale = args.in<T>(0)[i];
        if (label == s.ignored) {
          std::fill_n(dx, s.classes, T(0));
          continue;
        }
        simd.cross_entropy_grad(args.in<T>(1) + i * s.classes, scale, s.smoothing / static_cast<T>(s.classes), dx,
                                s.classes);
        dx[s.Class(label)] -= (1 - s.smoothing) * scale;
      }
    });
  }};
}

}  // namespace

std::span<const KernelRow> LossKernels() {
  constexpr TypeSet kLabels = Only(DType::kInt64);
  static constexpr KernelRow kRows[] = {
      {"CrossEntropy", PrepareCrossEntropy<float>, kFloat | kLabels, IsMatrix},
      {"CrossEntropy", PrepareCrossEntropy<double>, kDouble | kLabels, IsMatrix},
      {"CrossEntropyGrad", PrepareCrossEntropyGrad<float>, kFloat | kLabels, IsMatrix},
      {"CrossEntropyGrad", PrepareCrossEntropyGrad<double>, kDouble | kLabels, IsMatrix},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
