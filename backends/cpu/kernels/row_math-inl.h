// Sums contiguous floats in double precision, in an order that depends on the length alone. Adds lanes by halves, since
// a chain of sixteen additions would dominate short rows.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_ROW_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_ROW_MATH_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_ROW_MATH_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_ROW_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kLanes = 16;

inline double AddLanes(const double* lanes) {
  double eight[8], four[4];
  for (int j = 0; j < 8; ++j) eight[j] = lanes[j] + lanes[j + 8];
  for (int j = 0; j < 4; ++j) four[j] = eight[j] + eight[j + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Returns Σ f(i) for i in [0, n).
template <typename F>
inline double SumElements(int64_t n, F f) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(f(i + j));
  }
  double rest = 0;
  for (; i < n; ++i) rest += static_cast<double>(f(i));
  return AddLanes(lanes) + rest;
}

// Explicit vectors: compilers turn a maximum of floats into branches.
typedef float FloatLanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
typedef int IntLanes __attribute__((vector_size(kLanes * sizeof(int))));

inline void UpdateMax(const FloatLanes& x, FloatLanes& max) { max = (x > max) | (x != x) ? x : max; }

// Returns the maximum; NaN if any element is NaN, −∞ if n is 0.
inline double MaxElement(const double* x, int64_t n) {
  double best = -__builtin_inf();
  for (int64_t i = 0; i < n; ++i) best = x[i] > best || x[i] != x[i] ? x[i] : best;
  return best;
}
inline float MaxElement(const float* x, int64_t n) {
  float best = -__builtin_inff();
  int64_t i = 0;
  if (n >= kLanes) {
    FloatLanes max = *reinterpret_cast<const FloatLanes*>(x);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      UpdateMax(*reinterpret_cast<const FloatLanes*>(x + i), max);
    }
    for (int half = kLanes / 2; half > 0; half /= 2) {
      const IntLanes all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
      UpdateMax(__builtin_shuffle(max, all ^ half), max);
    }
    best = max[0];
  }
  for (; i < n; ++i) best = x[i] > best || x[i] != x[i] ? x[i] : best;
  return best;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
