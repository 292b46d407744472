#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
T LoadExact(T x) {
  return x;
}
inline float LoadExact(BFloat16 x) { return ToFloat(x); }

template <typename T>
void Store(T v, T* to) {
  *to = v;
}
template <typename T>
void Store(T v, BFloat16* to) {
  StoreRounded(static_cast<float>(v), to);
}

// Computes y[o] = Σ_t weight[t·n + o]·x[index[t·n + o]]; accumulates into y if kAdd.
template <int kTaps, bool kAdd, typename T>
void GatherTaps(const T* x, const int32_t* index, const T* weight, int64_t n, T* y) {
#pragma GCC ivdep
  for (int64_t o = 0; o < n; ++o) {
    T sum = weight[o] * x[index[o]];
    if constexpr (kTaps > 1) sum += weight[n + o] * x[index[n + o]];
    if constexpr (kTaps > 2) sum += weight[2 * n + o] * x[index[2 * n + o]];
    if constexpr (kTaps > 3) sum += weight[3 * n + o] * x[index[3 * n + o]];
    y[o] = kAdd ? y[o] + sum : sum;
  }
}

template <bool kAdd, typename T>
void GatherUpTo4(int taps, const T* x, const int32_t* index, const T* weight, int64_t n, T* y) {
  if (taps == 1)
    GatherTaps<1, kAdd>(x, index, weight, n, y);
  else if (taps == 2)
    GatherTaps<2, kAdd>(x, index, weight, n, y);
  else if (taps == 3)
    GatherTaps<3, kAdd>(x, index, weight, n, y);
  else
    GatherTaps<4, kAdd>(x, index, weight, n, y);
}

template <typename T>
void Gather(int taps, const T* x, const int32_t* index, const T* weight, int64_t n, T* y) {
  GatherUpTo4<false>(taps < 4 ? taps : 4, x, index, weight, n, y);
  for (int t = 4; t < taps; t += 4)
    GatherUpTo4<true>(taps - t < 4 ? taps - t : 4, x, index + t * n, weight + t * n, n, y);
}

// Computes y[i] = Σ_t weight[t]·x[row[t] + i]; accumulates into y if kAdd.
template <int kTaps, bool kAdd, typename T, typename X, typename Y>
void BlendTaps(const X* x, const int64_t* row, const T* weight, int64_t n, Y* y) {
  const X *a = x + row[0], *b = x + row[kTaps > 1 ? 1 : 0], *c = x + row[kTaps > 2 ? 2 : 0],
          *d = x + row[kTaps > 3 ? 3 : 0];
  const T wa = weight[0], wb = weight[kTaps > 1 ? 1 : 0], wc = weight[kTaps > 2 ? 2 : 0],
          wd = weight[kTaps > 3 ? 3 : 0];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    T sum = wa * LoadExact(a[i]);
    if constexpr (kTaps > 1) sum += wb * LoadExact(b[i]);
    if constexpr (kTaps > 2) sum += wc * LoadExact(c[i]);
    if constexpr (kTaps > 3) sum += wd * LoadExact(d[i]);
    Store(kAdd ? LoadExact(y[i]) + sum : sum, y + i);
  }
}

template <bool kAdd, typename T, typename X, typename Y>
void BlendUpTo4(int64_t taps, const X* x, const int64_t* row, const T* weight, int64_t n, Y* y) {
  if (taps == 1)
    BlendTaps<1, kAdd>(x, row, weight, n, y);
  else if (taps == 2)
    BlendTaps<2, kAdd>(x, row, weight, n, y);
  else if (taps == 3)
    BlendTaps<3, kAdd>(x, row, weight, n, y);
  else
    BlendTaps<4, kAdd>(x, row, weight, n, y);
}

template <typename T, typename X>
void BlendRows(int64_t taps, const X* x, const int64_t* row, const T* weight, int64_t n, T* y) {
  BlendUpTo4<false>(taps < 4 ? taps : 4, x, row, weight, n, y);
  for (int64_t t = 4; t < taps; t += 4) BlendUpTo4<true>(taps - t < 4 ? taps - t : 4, x, row + t, weight + t, n, y);
}

// Computes the sum in T and rounds it once.
template <typename T, typename X>
void BlendToBf16(int64_t taps, const X* x, const int64_t* row, const T* weight, int64_t n, BFloat16* y) {
  if (taps <= 4) return BlendUpTo4<false>(taps, x, row, weight, n, y);
  constexpr int64_t kTogether = 256, kFirst = 0;
  constexpr T kOne = 1;
  T sum[kTogether];
  for (int64_t i = 0; i < n; i += kTogether) {
    const int64_t some = n - i < kTogether ? n - i : kTogether;
    BlendRows(taps, x + i, row, weight, some, sum);
    BlendTaps<1, false>(sum, &kFirst, &kOne, some, y + i);
  }
}

template <typename T>
void Correlate(int taps, const T* x, const int32_t* index, const T* dy, int64_t n, T* sum) {
  for (int t = 0; t < taps; ++t) {
    const int32_t* at = index + t * n;
    T* to = sum + t * n;
#pragma GCC ivdep
    for (int64_t o = 0; o < n; ++o) to[o] += dy[o] * x[at[o]];
  }
}

// Computes y[2i] = y[2i + 1] = x[i].
template <typename T>
void Repeat2x(const T* x, int64_t n, T* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T v = x[i];
    y[2 * i] = v;
    y[2 * i + 1] = v;
  }
}

// Computes y[i] = x[2i] + x[2i + 1].
template <typename T>
void SumPairs(const T* x, int64_t n, T* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[2 * i] + x[2 * i + 1];
}

template <typename T>
constexpr ResampleSimd<T> kResample = {
    Gather<T>,   BlendRows<T, T>, BlendRows<T, BFloat16>, BlendToBf16<T, T>, BlendToBf16<T, BFloat16>, Correlate<T>,
    Repeat2x<T>, SumPairs<T>};

}  // namespace

const ResampleSimd<float>& FloatResampleTable() { return kResample<float>; }
const ResampleSimd<double>& DoubleResampleTable() { return kResample<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
