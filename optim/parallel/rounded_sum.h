// Sums float32 values over the ranks, which send them rounded to bfloat16: half the bytes of an all-reduce.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "backends/collectives.h"

namespace onnxtrain {

// A reduce-scatter and an all-gather. Every rank sums a part of the values in float32, in the order of the ranks, and
// all get the same bits. Thread-compatible.
class RoundedSum {
 public:
  // `ranks` must outlive it.
  explicit RoundedSum(Collectives* ranks) : ranks_(*ranks) {}

  // Replaces the values with their sums, rounded to bfloat16.
  absl::Status Sum(std::string_view what, std::span<float> values);
  // Stores this rank's part of the sums, which is not rounded, in `sum`: one of size() equal parts of the values.
  absl::Status SumPart(std::string_view what, std::span<const float> values, std::span<float> sum);

 private:
  absl::Status ExchangeParts(std::string_view what, std::span<const float> values, size_t part);
  void SumParts(std::span<float> sum);

  Collectives& ranks_;
  std::vector<uint16_t> own_, parts_, summed_;
  std::vector<float> sum_, term_;
};

}  // namespace onnxtrain
