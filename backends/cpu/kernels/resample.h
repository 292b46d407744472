// The loops of resampling and sampling, by instruction set.
#pragma once

#include <cstdint>

namespace onnxtrain::cpu {

template <typename T>
struct ResampleLeaf {
  // y[o] = Σ_t weight[t·n + o]·x[index[t·n + o]], t < taps, taps ≥ 1.
  void (*gathered)(int taps, const T* x, const int32_t* index, const T* weight, int64_t n, T* y);
  // y[i] = Σ_t weight[t]·x[row[t] + i], taps ≥ 1.
  void (*blended)(int64_t taps, const T* x, const int64_t* row, const T* weight, int64_t n, T* y);
  // sum[t·n + o] += dy[o]·x[index[t·n + o]].
  void (*correlated)(int taps, const T* x, const int32_t* index, const T* dy, int64_t n, T* sum);
  void (*doubled)(const T* x, int64_t n, T* y);  // 2n outputs
  void (*paired)(const T* x, int64_t n, T* y);   // of 2n inputs
};

// Of this processor. For float and double.
template <typename T>
const ResampleLeaf<T>& TheResampleLeaf();

}  // namespace onnxtrain::cpu
