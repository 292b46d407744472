// Cross entropy over the last axis (logits [N,C]); legalize.cc brings other shapes to it.
#include <algorithm>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/softmax.h"
#include "backends/cpu/parallel.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kCost = 16;  // of an element, against an addition

bool IsMatrix(const KernelContext& c) { return c.in(c.node.op == "CrossEntropy" ? 0 : 1).rank() == 2; }

struct Spec {
  int64_t samples, classes, ignored;
  float smoothing;
};

Spec SpecOf(const KernelContext& c, const Shape& logits) {
  return {logits[0], logits[1], c.attrs().Int("ignore_index"), static_cast<float>(c.attrs().Float("label_smoothing"))};
}

int64_t Class(const Spec& s, int64_t label) { return std::clamp<int64_t>(label, 0, s.classes - 1); }

absl::StatusOr<Kernel> PrepareCrossEntropy(const KernelContext& c) {
  const Spec s = SpecOf(c, c.in().shape);
  const SoftmaxLeaf& leaf = Softmaxes();
  return Kernel{.run = [s, &leaf](const Args& args) {
    Parallel(s.samples, s.classes * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* log_prob = args.out(1) + i * s.classes;
        leaf.log_softmax(args.in() + i * s.classes, log_prob, s.classes);
        const int64_t label = args.in<int64_t>(1)[i];
        float loss = -(1 - s.smoothing) * log_prob[Class(s, label)];
        if (s.smoothing > 0) loss -= s.smoothing * static_cast<float>(leaf.sum(log_prob, s.classes) / s.classes);
        args.out(0)[i] = label == s.ignored ? 0 : loss;
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareCrossEntropyGrad(const KernelContext& c) {
  const Spec s = SpecOf(c, c.in(1).shape);
  const SoftmaxLeaf& leaf = Softmaxes();
  return Kernel{.run = [s, &leaf](const Args& args) {
    Parallel(s.samples, s.classes * kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* dx = args.out() + i * s.classes;
        const int64_t label = args.in<int64_t>(2)[i];
        const float scale = args.in(0)[i];
        if (label == s.ignored) {
          std::fill_n(dx, s.classes, 0.0f);
          continue;
        }
        leaf.cross_entropy_grad(args.in(1) + i * s.classes, scale, s.smoothing / static_cast<float>(s.classes), dx, s.classes);
        dx[Class(s, label)] -= (1 - s.smoothing) * scale;
      }
    });
  }};
}

}  // namespace

std::span<const KernelRow> LossKernels() {
  constexpr TypeSet kTypes = kFloat | Only(DType::kInt64);
  static constexpr KernelRow kRows[] = {
      {"CrossEntropy", PrepareCrossEntropy, kTypes, IsMatrix},
      {"CrossEntropyGrad", PrepareCrossEntropyGrad, kTypes, IsMatrix},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
