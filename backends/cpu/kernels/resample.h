// The loops of resampling and sampling, by instruction set, and which tensors they take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/typed.h"
#include "frontend/graph/attrs.h"

namespace onnxtrain::cpu {

template <typename T>
struct ResampleLeaf {
  // y[o] = Σ_t weight[t·n + o]·x[index[t·n + o]], t < taps, taps ≥ 1.
  void (*gathered)(int taps, const T* x, const int32_t* index, const T* weight, int64_t n, T* y);
  // y[i] = Σ_t weight[t]·x[row[t] + i], taps ≥ 1.
  template <typename X, typename Y>
  using Blend = void (*)(int64_t taps, const X* x, const int64_t* row, const T* weight, int64_t n, Y* y);
  Blend<T, T> blended;
  Blend<BFloat16, T> widened;
  Blend<T, BFloat16> narrowed;
  Blend<BFloat16, BFloat16> of_halves;
  // sum[t·n + o] += dy[o]·x[index[t·n + o]].
  void (*correlated)(int taps, const T* x, const int32_t* index, const T* dy, int64_t n, T* sum);
  void (*doubled)(const T* x, int64_t n, T* y);  // 2n outputs
  void (*paired)(const T* x, int64_t n, T* y);   // of 2n inputs
};

// Do Resample and ResampleGrad of these attributes take bf16 x? Not along single elements: channels are last, and several.
inline bool ResamplesHalves(const Attrs& attrs, const Shape& x) {
  const std::vector<int64_t> axes = attrs.Ints("axes");
  const auto last = static_cast<int64_t>(x.size()) - 1;
  return !x.empty() && x.back() > 1 && std::find(axes.begin(), axes.end(), last) == axes.end();
}

// Of this processor. For float and double.
template <typename T>
const ResampleLeaf<T>& TheResampleLeaf();

}  // namespace onnxtrain::cpu
