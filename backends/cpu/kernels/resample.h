// Declares the inner loops of Resample and GridSample, which are compiled per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/typed.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

template <typename T>
struct ResampleSimd {
  // Computes y[o] = Σ_t weight[t·n + o]·x[index[t·n + o]], t < taps, taps ≥ 1.
  void (*gather)(int taps, const T* x, const int32_t* index, const T* weight, int64_t n, T* y);
  // Computes y[i] = Σ_t weight[t]·x[row[t] + i], taps ≥ 1.
  template <typename X, typename Y>
  using Blend = void (*)(int64_t taps, const X* x, const int64_t* row, const T* weight, int64_t n, Y* y);
  Blend<T, T> blend;
  Blend<BFloat16, T> blend_from_bf16;
  Blend<T, BFloat16> blend_to_bf16;
  Blend<BFloat16, BFloat16> blend_bf16;
  // Computes sum[t·n + o] += dy[o]·x[index[t·n + o]].
  void (*correlate)(int taps, const T* x, const int32_t* index, const T* dy, int64_t n, T* sum);
  void (*repeat_2x)(const T* x, int64_t n, T* y);  // 2n outputs
  void (*sum_pairs)(const T* x, int64_t n, T* y);  // 2n inputs
};

// Returns true if Resample and ResampleGrad with these attributes accept bf16: the innermost axis, the channels, is not
// resized and has several elements.
inline bool SupportsBf16Resample(const Attrs& attrs, const Shape& x) {
  const std::vector<int64_t> axes = attrs.Ints("axes");
  const auto last = static_cast<int64_t>(x.size()) - 1;
  return !x.empty() && x.back() > 1 && std::find(axes.begin(), axes.end(), last) == axes.end();
}

// Returns the implementation for this processor. T is float or double.
template <typename T>
const ResampleSimd<T>& GetResampleSimd();

}  // namespace onnxtrain::cpu
