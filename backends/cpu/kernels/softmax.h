// Functions over a row of classes or scores.
#pragma once

#include <cstdint>

namespace onnxtrain::cpu {

// T: float or double.
template <typename T>
struct SoftmaxSimd {
  void (*softmax)(const T* x, T* y, int64_t n);      // y may be x
  void (*log_softmax)(const T* x, T* y, int64_t n);  // y may be x
  void (*softmax_grad)(const T* dy, const T* y, T* dx, int64_t n);
  void (*log_softmax_grad)(const T* dy, const T* y, T* dx, int64_t n);
  void (*cross_entropy_grad)(const T* log_prob, T scale, T base, T* dx, int64_t n);  // (p − base)·scale
  double (*sum)(const T* x, int64_t n);
};

template <typename T>
const SoftmaxSimd<T>& GetSoftmaxSimd();
template <>
const SoftmaxSimd<float>& GetSoftmaxSimd();
template <>
const SoftmaxSimd<double>& GetSoftmaxSimd();

}  // namespace onnxtrain::cpu
