#include "optim/record/telemetry/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace onnxtrain {

void Durations::Add(double seconds) {
  const double bucket = std::round(std::log(std::max(seconds, kLeast) / kLeast) / std::log(kGrowth));
  ++buckets_[static_cast<size_t>(std::clamp(bucket, 0.0, static_cast<double>(buckets_.size() - 1)))];
  ++count_;
}

double Durations::Quantile(double q) const {
  if (count_ == 0) return 0;
  const auto rank = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(count_))));
  size_t bucket = 0;
  for (int64_t below = buckets_[0]; below < rank; below += buckets_[++bucket]) {
  }
  return kLeast * std::pow(kGrowth, static_cast<double>(bucket));
}

namespace {

constexpr int64_t kWindow = 64, kEvery = 16;
constexpr double kDeviations = 10, kNormal = 1.4826;  // MAD of a normal distribution → its standard deviation
constexpr double kLeastExcess = 0.5;                  // relative to the median
constexpr double kTail = 0.9, kTails = 6;             // a quantile, and the factor for its distance from the median

using Sorted = std::array<double, kWindow>;

double Quantile(Sorted& values, size_t count, double q) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(count) * q);
  std::nth_element(values.begin(), at, values.begin() + static_cast<std::ptrdiff_t>(count));
  return *at;
}

}  // namespace

std::optional<double> OutlierWindow::Add(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  const bool judged = count >= kEvery;
  const double before = median;
  const bool outlier = judged && value > limit;
  if (values.empty()) values.reserve(kWindow);
  if (std::ssize(values) < kWindow) {
    values.push_back(value);
  } else {
    values[count % kWindow] = value;
  }
  if (++count % kEvery == 0) UpdateLimit();
  return outlier ? std::optional(before) : std::nullopt;
}

void OutlierWindow::UpdateLimit() {
  Sorted sorted;
  std::ranges::copy(values, sorted.begin());
  median = Quantile(sorted, values.size(), 0.5);
  const double tail = Quantile(sorted, values.size(), kTail) - median;
  for (size_t i = 0; i < values.size(); ++i) sorted[i] = std::abs(values[i] - median);
  const double deviation = kNormal * Quantile(sorted, values.size(), 0.5);
  limit = median + std::max({kDeviations * deviation, kLeastExcess * std::abs(median), kTails * tail});
}

}  // namespace onnxtrain
