// The discrete Fourier transform as a composition of matrix products, which makes it differentiable.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// Real and imaginary parts of one shape. An invalid imaginary part is zero.
struct Complex {
  Val re, im;
};

// A prime factor of the length costs a table of its square; longer transforms with small factors cost n·Σ factors.
inline constexpr int64_t kMaxPrimeLength = 4096;

// y[…,k] = Σ_n x[…,n]·exp(∓2πi·k·n/N) along the last axis, without a factor; + with `inverse`. Fails on an empty axis
// and where a prime factor of the length is above kMaxPrimeLength. The result always has both parts.
absl::StatusOr<Complex> FourierTransform(Complex x, bool inverse);

}  // namespace onnxtrain
