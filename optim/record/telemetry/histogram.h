// Distribution of many numbers, as TensorBoard shows it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Counts numbers in buckets of their sign and size, eight for each power of two. Leaves out NaN and infinities.
class Histogram {
 public:
  void Add(const HostTensor& tensor);
  int64_t count() const { return count_; }
  // A HistogramProto of tensorflow/core/framework/summary.proto.
  std::string Proto() const;

 private:
  static constexpr int kBuckets = 255 << 3;  // below infinity
  void AddOne(float value);
  // Appends a bucket of the numbers up to `limit`, from the limit before or, with an empty bucket in between, `from`.
  static void Append(double from, double limit, int64_t count, double* last, std::string* limits, std::string* counts);

  std::array<int64_t, kBuckets> positive_ = {}, negative_ = {};  // by the leading bits of the magnitude
  int64_t count_ = 0;
  double min_ = std::numeric_limits<double>::infinity(), max_ = -min_, sum_ = 0, sum_squares_ = 0;
};

}  // namespace onnxtrain
