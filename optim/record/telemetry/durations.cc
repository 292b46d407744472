#include "optim/record/telemetry/durations.h"

#include <algorithm>
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

}  // namespace onnxtrain
