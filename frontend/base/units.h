// Parses numbers, durations, sizes and lists, and formats numbers for people. Errors say what is expected, without the
// name of the value.
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

// 5625 → "5,625"
std::string FormatWithCommas(int64_t n);
// 1536 → "1.5 KiB"
std::string FormatBytes(double bytes);
// 75 → "1:15", 4000 → "1:06:40", 0.42 → "0.42 s"
std::string FormatSeconds(double seconds);
// 0.00042 → "420 µs", 0.0123 → "12.3 ms", 2.5 → "2.5 s": of something that repeats
std::string FormatDuration(double seconds);
// Four significant digits: 0.00012345 → "0.0001234"
std::string FormatNumber(double x);

}  // namespace onnxtrain
