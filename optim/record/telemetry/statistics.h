// Computes quantiles of durations, and detects outliers of the loss and the gradient norm.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace onnxtrain {

// Counts durations in fixed memory: buckets grow by 1 % from 100 ns to 11 hours; others count for the nearest bucket.
class Durations {
 public:
  void Add(double seconds);
  int64_t count() const { return count_; }
  // Returns the quantile `q` in (0, 1] to 1 %; 0 if there are no durations.
  double Quantile(double q) const;

 private:
  static constexpr double kLeast = 1e-7, kGrowth = 1.01;
  std::array<int64_t, 2680> buckets_ = {};
  int64_t count_ = 0;
};

// An update whose loss or gradient norm is far above those of the updates before it.
struct Outlier {
  enum class Of : uint8_t { kLoss, kGradNorm } of = Of::kLoss;
  int64_t step = 0;
  double value = 0, median = 0;  // value of the update, median of those before it
};

// Detects outliers above a limit computed from the last 64 values: the largest of median + 10 standard deviations
// (estimated by the median absolute deviation), 1.5 × median, and, for heavy tails, median + 6 × the distance of the
// 90 % quantile from the median.
class OutlierWindow {
 public:
  // Adds a value, and returns the median if it is an outlier. The limit is updated after every 16 values. Ignores NaN
  // and infinities.
  std::optional<double> Add(double value);

  // The state, which checkpoints store.
  std::vector<double> values;  // the last 64, in a ring
  int64_t count = 0;           // number of all values so far
  double median = 0, limit = 0;

 private:
  void UpdateLimit();
};

}  // namespace onnxtrain
