// Batch normalization from its sums over a channel, in any layout (Ioffe and Szegedy, 2015).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace onnxtrain::cpu {

struct BatchStatistics {
  float mean, rstd;
};

// Computes mean and 1/√(variance + epsilon) from Σx and Σx² over `count` elements. The double sums keep the variance
// exact to float32.
inline BatchStatistics ComputeBatchStatistics(double sum, double squares, int64_t count, double epsilon) {
  const double n = static_cast<double>(count), mean = sum / n, variance = std::max(0.0, squares / n - mean * mean);
  return {static_cast<float>(mean), static_cast<float>(1 / std::sqrt(variance + epsilon))};
}

// The terms of dx = (dy − mean_dy − (x − mean)·slope)·scale·rstd.
struct BatchGradient {
  float dscale, dbias, mean_dy, slope;
};

// Computes the gradient's terms from Σdy and Σdy·(x − mean).
inline BatchGradient ComputeBatchGradient(double sum, double dot, int64_t count, float rstd) {
  const double n = static_cast<double>(count);
  return {static_cast<float>(dot * rstd), static_cast<float>(sum), static_cast<float>(sum / n),
          static_cast<float>(dot / n * rstd * rstd)};
}

}  // namespace onnxtrain::cpu
