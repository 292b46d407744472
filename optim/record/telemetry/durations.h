// Quantiles of many durations in fixed memory.
#pragma once

#include <array>
#include <cstdint>

namespace onnxtrain {

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

}  // namespace onnxtrain
