// Quantiles of durations, and values of an update that are far above those of the updates before it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace onnxtrain {

// Quantiles of many durations in fixed memory.

// Counts durations in buckets that grow by 1 %, from 100 ns to 11 hours; what is outside counts for the nearest.
class Durations {
 public:
  void Add(double seconds);
  int64_t count() const { return count_; }
  // Returns the least duration that at least the share `q` (in (0, 1]) of all does not exceed, to 1 %; 0 of none.
  double Quantile(double q) const;

 private:
  static constexpr double kLeast = 1e-7, kGrowth = 1.01;
  std::array<int64_t, 2680> buckets_ = {};
  int64_t count_ = 0;
};

// Finds values of an update that are far above those of the updates before it.

// An update whose loss or gradient norm is an outlier.
struct Outlier {
  enum class Of : uint8_t { kLoss, kGradNorm } of = Of::kLoss;
  int64_t step = 0;
  double value = 0, median = 0;  // of the update, and of those before it
};

// The last values and the limit that follows from them: the median plus ten standard deviations, estimated by the
// median absolute deviation, and at least half of the median more. What is in a heavy tail is no outlier: the limit is
// at least six times as far from the median as the greatest tenth.
class OutlierWindow {
 public:
  // Returns the median where the value is an outlier. Every value counts for the limit of later ones, which is computed
  // after every 16 values. NaN and infinities are left out.
  std::optional<double> Add(double value);

  // The state, for a run that continues.
  std::vector<double> values;  // the last 64, in a ring
  int64_t count = 0;           // of all values
  double median = 0, limit = 0;

 private:
  void UpdateLimit();
};

}  // namespace onnxtrain
