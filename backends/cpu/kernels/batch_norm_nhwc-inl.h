#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// The number of rows that are summed before they are added to the accumulators.
constexpr int kTogether = 4;

// Adds to two sums per column the addends that f(element, column, &first, &second) computes for n elements.
template <typename F>
inline void AddTwo(int64_t n, int64_t period, double* first, double* second, F f) {
  int64_t at = 0;
  for (; at + kTogether * period <= n; at += kTogether * period) {
#pragma GCC ivdep
    for (int64_t i = 0; i < period; ++i) {
      double a = 0, b = 0;
      for (int row = 0; row < kTogether; ++row) f(at + row * period + i, i, &a, &b);
      first[i] += a;
      second[i] += b;
    }
  }
  for (; at < n; at += period) {
    const int64_t count = n - at < period ? n - at : period;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) f(at + i, i, &first[i], &second[i]);
  }
}

template <typename T>
void Moments(const T* x, int64_t n, int64_t period, double* sums, double* squares) {
  AddTwo(n, period, sums, squares, [=](int64_t at, int64_t, double* sum, double* square) {
    const auto v = static_cast<double>(ToFloat(x[at]));
    *sum += v;
    *square += v * v;
  });
}

// Returns the gradient before the Relu: dy if the normalized value is positive, else 0. Recomputes that value with the
// rounding of Affine.
template <bool kRelu>
inline float MaskByRelu(float dy, float x, const Normalized& n, int64_t i) {
  return !kRelu || (x - n.mean[i]) * n.scale[i] + n.bias[i] > 0 ? dy : 0.0f;
}

template <bool kRelu, typename T>
void Dots(const T* dy, const T* x, int64_t n, int64_t period, const Normalized& to, double* sums, double* dots) {
  AddTwo(n, period, sums, dots, [=](int64_t at, int64_t i, double* sum, double* dot) {
    const float v = ToFloat(x[at]), g = MaskByRelu<kRelu>(ToFloat(dy[at]), v, to, i);
    *sum += static_cast<double>(g);
    *dot += static_cast<double>(g * (v - to.mean[i]));
  });
}

// Calls f(element, column) for n elements.
template <typename F>
inline void ForRows(int64_t n, int64_t period, F f) {
  for (int64_t at = 0; at < n; at += period) {
    const int64_t count = n - at < period ? n - at : period;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) f(at + i, i);
  }
}

template <bool kRelu, bool kAdds, typename T>
void Affine(const T* x, const T* residual, int64_t n, int64_t period, const Normalized& to, T* y) {
  ForRows(n, period, [=](int64_t at, int64_t i) {
    const float normalized = (ToFloat(x[at]) - to.mean[i]) * to.scale[i] + to.bias[i];
    const float v = kAdds ? normalized + ToFloat(residual[at]) : normalized;
    StoreRounded(kRelu && v < 0 ? 0.0f : v, &y[at]);
  });
}

template <bool kRelu, typename T>
void Gradient(const T* dy, const T* x, int64_t n, int64_t period, const Normalized& to, const float* a, const float* b,
              T* dx) {
  ForRows(n, period, [=](int64_t at, int64_t i) {
    const float v = ToFloat(x[at]);
    StoreRounded((MaskByRelu<kRelu>(ToFloat(dy[at]), v, to, i) - a[i] - (v - to.mean[i]) * b[i]) * to.scale[i],
                 &dx[at]);
  });
}

template <typename T>
constexpr BatchNormNhwcSimd<T> kBatchNorm = {
    Moments<T>,
    {{Affine<false, false, T>, Affine<true, false, T>}, {Affine<false, true, T>, Affine<true, true, T>}},
    {Dots<false, T>, Dots<true, T>},
    {Gradient<false, T>, Gradient<true, T>}};

}  // namespace

const BatchNormNhwcSimd<float>& FloatBatchNormNhwcTable() { return kBatchNorm<float>; }
const BatchNormNhwcSimd<BFloat16>& BFloat16BatchNormNhwcTable() { return kBatchNorm<BFloat16>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
