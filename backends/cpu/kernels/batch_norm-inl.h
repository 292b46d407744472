#include "backends/cpu/kernels/row_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

double Sum(const float* x, int64_t n) {
  return SumElements(n, [&](int64_t i) { return x[i]; });
}

// Computes Σx and Σx² in one pass.
Moments ComputeMoments(const float* x, int64_t n) {
  double sums[kLanes] = {}, squares[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const auto v = static_cast<double>(x[i + j]);
      sums[j] += v;
      squares[j] += v * v;
    }
  }
  for (int j = 0; i < n; ++i, ++j) {
    const auto v = static_cast<double>(x[i]);
    sums[j] += v;
    squares[j] += v * v;
  }
  return {AddLanes(sums), AddLanes(squares)};
}

double CenteredDot(const float* dy, const float* x, int64_t n, float mean) {
  return SumElements(n, [&](int64_t i) { return dy[i] * (x[i] - mean); });
}

void Affine(const float* x, int64_t n, float mean, float scale, float bias, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + bias;
}

void BatchGrad(const float* dy, const float* x, int64_t n, float mean, float a, float b, float k, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = (dy[i] - a - (x[i] - mean) * b) * k;
}

}  // namespace

const BatchNormSimd& BatchNormTable() {
  static constexpr BatchNormSimd kTable = {Sum, ComputeMoments, CenteredDot, Affine, BatchGrad};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
