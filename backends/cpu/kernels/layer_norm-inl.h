#include "backends/cpu/kernels/row_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// Normalizes one row: LayerNorm if kCentered, else RMSNorm, which is LayerNorm with mean = 0.
template <bool kCentered>
void Row(const float* x, const float* scale, const float* bias, int64_t n, double epsilon, float* y, float* mean,
         float* rstd) {
  const float m = kCentered ? static_cast<float>(SumElements(n, [&](int64_t i) { return x[i]; }) / n) : 0;
  const double variance = SumElements(n, [&](int64_t i) { return (x[i] - m) * (x[i] - m); }) / n;
  const auto r = static_cast<float>(1.0 / __builtin_sqrt(variance + epsilon));
  *mean = m;
  *rstd = r;
  if (bias == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * r * scale[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * r * scale[i] + bias[i];
  }
}

template <bool kCentered>
void GradRow(const float* dy, const float* x, const float* scale, int64_t n, float mean, float rstd, float* dx,
             double* dscale, double* dbias) {
  const float m = kCentered ? mean : 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    dscale[i] += static_cast<double>(dy[i] * ((x[i] - m) * rstd));
    if (kCentered) dbias[i] += static_cast<double>(dy[i]);
  }
  const float mean_g =
      kCentered ? static_cast<float>(SumElements(n, [&](int64_t i) { return dy[i] * scale[i]; }) / n) : 0;
  const auto mean_gx =
      static_cast<float>(SumElements(n, [&](int64_t i) { return dy[i] * scale[i] * ((x[i] - m) * rstd); }) / n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] * scale[i] - mean_g - (x[i] - m) * rstd * mean_gx);
}

template <bool kCentered>
constexpr LayerNormSimd kLayerNorm = {Row<kCentered>, GradRow<kCentered>};

}  // namespace

const LayerNormSimd& LayerNormTable() { return kLayerNorm<true>; }
const LayerNormSimd& RmsNormTable() { return kLayerNorm<false>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
