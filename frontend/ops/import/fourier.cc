#include "frontend/ops/import/fourier.h"

#include <cmath>
#include <numbers>

#include "frontend/base/status.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr int64_t kDirect = 128;  // lengths up to this are one product

// cos and sin of 2π·i·j/n for i < rows, j < columns. The product is reduced before it becomes an angle: exact for any
// length.
Complex MakeDftMatrix(Builder& b, DType dtype, int64_t rows, int64_t columns, int64_t n, bool inverse) {
  HostTensor cosine({dtype, {rows, columns}}), sine({dtype, {rows, columns}});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i * j % n) / static_cast<double>(n);
      cosine.Set(i * columns + j, std::cos(angle));
      sine.Set(i * columns + j, inverse ? std::sin(angle) : -std::sin(angle));
    }
  }
  return {b.Constant(std::move(cosine)), b.Constant(std::move(sine))};
}

// The product of complex values under a bilinear operator.
template <typename F>
Complex ComplexMultiply(Complex x, Complex w, F product) {
  if (!x.im) return {product(x.re, w.re), product(x.re, w.im)};
  return {product(x.re, w.re) - product(x.im, w.im), product(x.re, w.im) + product(x.im, w.re)};
}

template <typename F>
Complex Each(Complex x, F f) {
  return {f(x.re), x.im ? f(x.im) : Val()};
}

Complex Direct(Complex x, int64_t n, bool inverse) {
  const Complex waves = MakeDftMatrix(x.re.b(), x.re.dtype(), n, n, n, inverse);
  return ComplexMultiply(x, waves, [](Val v, Val w) { return MatMul(v, w); });
}

// The largest divisor up to kDirect, or 1.
int64_t Factor(int64_t n) {
  for (int64_t f = std::min(kDirect, n); f > 1; --f) {
    if (n % f == 0) return f;
  }
  return 1;
}

// x [M,n] (Cooley and Tukey, 1965): n = a·b, input index b·i + j, output index k + a·l. Transforms over i, turns by
// exp(∓2πi·j·k/n), transforms over j.
absl::StatusOr<Complex> Transform(Complex x, bool inverse) {
  const int64_t rows = x.re.dim(0), n = x.re.dim(1), a = n <= kDirect ? n : Factor(n), b = n / a;
  if (b == 1) return Direct(x, n, inverse);
  if (a == 1) {
    if (n > kMaxPrimeLength)
      return absl::UnimplementedError(StrCat("a transform of length ", n, ", which has no factor up to ", kDirect,
                                             ", is above the limit of ", kMaxPrimeLength));
    return Direct(x, n, inverse);
  }
  x = Each(x, [&](Val v) { return Reshape(Transpose(Reshape(v, {rows, a, b}), {0, 2, 1}), {rows * b, a}); });
  x = Each(Direct(x, a, inverse), [&](Val v) { return Reshape(v, {rows, b, a}); });
  x = ComplexMultiply(x, MakeDftMatrix(x.re.b(), x.re.dtype(), b, a, n, inverse), [](Val v, Val w) { return v * w; });
  x = Each(x, [&](Val v) { return Reshape(Transpose(v, {0, 2, 1}), {rows * a, b}); });
  ASSIGN_OR_RETURN(x, Transform(x, inverse));
  return Each(x, [&](Val v) { return Reshape(Transpose(Reshape(v, {rows, a, b}), {0, 2, 1}), {rows, n}); });
}

}  // namespace

absl::StatusOr<Complex> FourierTransform(Complex x, bool inverse) {
  if (!x.re.valid()) return Complex{};
  const Shape shape = x.re.shape();
  if (shape.empty() || shape.back() < 1) return Invalid("a transform along an empty axis of ", ToString(shape));
  const int64_t n = shape.back();
  ASSIGN_OR_RETURN(x, Transform(Each(x, [&](Val v) { return Reshape(v, {NumElements(shape) / n, n}); }), inverse));
  return Each(x, [&](Val v) { return Reshape(v, shape); });
}

}  // namespace onnxtrain
