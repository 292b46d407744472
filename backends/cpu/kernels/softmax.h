// Functions over one line of classes or scores.
#pragma once

#include <cstdint>

namespace onnxtrain::cpu {

struct SoftmaxLeaf {
  void (*softmax)(const float* x, float* y, int64_t n);      // y may be x
  void (*log_softmax)(const float* x, float* y, int64_t n);  // y may be x
  void (*softmax_grad)(const float* dy, const float* y, float* dx, int64_t n);
  void (*log_softmax_grad)(const float* dy, const float* y, float* dx, int64_t n);
  void (*cross_entropy_grad)(const float* log_prob, float scale, float base, float* dx, int64_t n);  // (p − base)·scale
  double (*sum)(const float* x, int64_t n);
};

const SoftmaxLeaf& Softmaxes();


}  // namespace onnxtrain::cpu
