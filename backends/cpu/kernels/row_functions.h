// Functions over rows of contiguous elements that several kernels share: reductions, softmax and dropout. They are
// compiled per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// A reduction over elements of one type. `accs` are n accumulators.
struct Reducer {
  size_t accumulator;  // bytes
  void (*start)(void* accs, int64_t n);
  void (*row)(const void* x, int64_t n, void* acc);       // n elements into one accumulator
  void (*columns)(const void* x, int64_t n, void* accs);  // each of n elements into its accumulator
  void (*merge)(void* into, const void* from, int64_t n);
  void (*finish)(const void* accs, int64_t n, double divisor, void* y);
};

// Returns the sum of float32, accumulated in double precision.
const Reducer& GetFloatSumReducer();

// Functions over a row of classes or scores. T: float or double.
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

// Dropout of consecutive elements: the mask is a function of key, stream and element index.
class DropoutSpan {
 public:
  // Reads the attributes ratio and stream. `elements` is the size of the whole tensor.
  DropoutSpan(const Attrs& attrs, int64_t elements);

  // Applies dropout to the elements [first, first + n) of the tensor, from x to y; y may be x. `key` has four words.
  void Run(const uint32_t* key, int64_t first, const float* x, int64_t n, float* y) const;

 private:
  int64_t stream_;
  uint64_t elements_;
  float ratio_, keep_;
};

}  // namespace onnxtrain::cpu
