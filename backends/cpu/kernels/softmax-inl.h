#include "backends/cpu/kernels/row_math-inl.h"
#include "backends/cpu/kernels/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void Softmax(const T* x, T* y, int64_t n) {
  const T max = MaxElement(x, n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = VecExp(x[i] - max);
  const T scale = static_cast<T>(1.0 / SumElements(n, [&](int64_t i) { return y[i]; }));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

template <typename T>
void LogSoftmax(const T* x, T* y, int64_t n) {
  const T max = MaxElement(x, n);
  const double sum = SumElements(n, [&](int64_t i) { return VecExp(x[i] - max); });
  const T shift = static_cast<T>(__builtin_log(sum));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - max - shift;
}

template <typename T>
void SoftmaxGrad(const T* dy, const T* y, T* dx, int64_t n) {
  const T dot = static_cast<T>(SumElements(n, [&](int64_t i) { return dy[i] * y[i]; }));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

template <typename T>
void LogSoftmaxGrad(const T* dy, const T* y, T* dx, int64_t n) {
  const T sum = static_cast<T>(SumElements(n, [&](int64_t i) { return dy[i]; }));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - VecExp(y[i]) * sum;
}

template <typename T>
void CrossEntropyGrad(const T* log_prob, T scale, T base, T* dx, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = (VecExp(log_prob[i]) - base) * scale;
}

template <typename T>
double Sum(const T* x, int64_t n) {
  return SumElements(n, [&](int64_t i) { return x[i]; });
}

template <typename T>
constexpr SoftmaxSimd<T> kSoftmaxTable = {Softmax<T>,        LogSoftmax<T>,       SoftmaxGrad<T>,
                                          LogSoftmaxGrad<T>, CrossEntropyGrad<T>, Sum<T>};

}  // namespace

const SoftmaxSimd<float>& SoftmaxTableF32() { return kSoftmaxTable<float>; }
const SoftmaxSimd<double>& SoftmaxTableF64() { return kSoftmaxTable<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
