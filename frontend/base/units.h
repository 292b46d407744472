// Parses numbers, durations, sizes and lists, and formats numbers for people. Errors state what is expected; the caller
// adds the name of the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

absl::StatusOr<double> ParseNumber(std::string_view text);  // the whole text must be one finite number
absl::StatusOr<int64_t> ParseInt(std::string_view text);
// Parses "90", "90s", "10m", "2h" or "1d". Returns seconds > 0.
absl::StatusOr<double> ParseDuration(std::string_view text);
// Parses "4096", "512KiB" or "1.5GiB". Returns bytes.
absl::StatusOr<int64_t> ParseSize(std::string_view text);

struct Interval {
  enum class Unit : uint8_t { kSteps, kSeconds, kEpochs } unit = Unit::kSteps;
  double value = 0;  // > 0

  bool operator==(const Interval&) const = default;
};
// Parses "500" (steps), "10m" (a duration) or "0.5ep" (epochs).
absl::StatusOr<Interval> ParseInterval(std::string_view text);

// Parses "a,b,c". An empty part is an error.
absl::StatusOr<std::vector<std::string>> ParseList(std::string_view text);
// Splits "name=value", both non-empty, at the first '='. `shape` is the expected form in the error: "NAME=N".
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view text, std::string_view shape);

// Formats 5625 as "5,625".
std::string FormatWithCommas(int64_t n);
// Formats items per second: 12345.6 as "12,346", 45.67 as "45.7" and 0.1267 as "0.13".
std::string FormatRate(double per_second);
// Formats 1536 as "1.5 KiB".
std::string FormatBytes(double bytes);
// Formats 75 as "1:15", 4000 as "1:06:40" and 0.42 as "0.42 s".
std::string FormatSeconds(double seconds);
// Formats the duration of one repetition: 0.00042 → "420 µs", 0.0123 → "12.3 ms", 2.5 → "2.5 s"
std::string FormatDuration(double seconds);
// Formats four significant digits: 0.00012345 as "0.0001234".
std::string FormatNumber(double x);

}  // namespace onnxtrain
