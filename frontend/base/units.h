// Parses numbers, durations, sizes and lists. Errors say what is expected, without the name of the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

absl::StatusOr<double> ParseNumber(std::string_view text);  // finite; the whole text
absl::StatusOr<int64_t> ParseInt(std::string_view text);
// "90", "90s", "10m", "2h", "1d" → seconds, above 0.
absl::StatusOr<double> ParseDuration(std::string_view text);
// "4096", "512KiB", "1.5GiB" → bytes.
absl::StatusOr<int64_t> ParseSize(std::string_view text);

struct Interval {
  enum class Unit : uint8_t { kSteps, kSeconds, kEpochs } unit = Unit::kSteps;
  double value = 0;  // above 0

  bool operator==(const Interval&) const = default;
};
// "500", "10m", "0.5ep"
absl::StatusOr<Interval> ParseInterval(std::string_view text);

// "a,b,c"; an empty part is an error.
absl::StatusOr<std::vector<std::string>> ParseList(std::string_view text);
// "name=value", both non-empty; the first '=' divides. `shape` names the form for the error: "NAME=N".
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view text, std::string_view shape);

}  // namespace onnxtrain
