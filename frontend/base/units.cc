#include "frontend/base/units.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

struct UnitName {
  std::string_view name;
  double factor;
};
constexpr UnitName kTimes[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
constexpr UnitName kSizes[] = {{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};

// Splits "1.5GiB" into "1.5" and "GiB".
std::pair<std::string_view, std::string_view> NumberAndUnit(std::string_view text) {
  const size_t end = text.find_last_of("0123456789.");
  const size_t length = end == std::string_view::npos ? 0 : end + 1;
  return {text.substr(0, length), text.substr(length)};
}

template <size_t N>
absl::StatusOr<double> ParseWithUnit(std::string_view text, const UnitName (&units)[N], std::string_view expected) {
  const auto [number, unit] = NumberAndUnit(text);
  for (const UnitName& u : units) {
    if (u.name != unit) continue;
    const auto value = ParseNumber(number);
    if (value.ok() && *value > 0) return *value * u.factor;
  }
  return Invalid("expected ", expected, ", got '", Printable(text), "'");
}

}  // namespace

absl::StatusOr<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return Invalid("expected a number, got '", Printable(text), "'");
  }
  return value;
}

absl::StatusOr<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return Invalid("expected a whole number, got '", Printable(text), "'");
  }
  return value;
}

absl::StatusOr<double> ParseDuration(std::string_view text) {
  return ParseWithUnit(text, kTimes, "a time like 90s, 10m or 2h");
}

absl::StatusOr<int64_t> ParseSize(std::string_view text) {
  ASSIGN_OR_RETURN(const double bytes, ParseWithUnit(text, kSizes, "a size like 4096, 512KiB, 64MiB or 2GiB"));
  if (bytes > 0x1p62) return Invalid("expected a size below 4 EiB, got '", Printable(text), "'");
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<Interval> ParseInterval(std::string_view text) {
  constexpr std::string_view kExpected = "an interval like 500 (updates), 10m or 1ep";
  const auto [number, unit] = NumberAndUnit(text);
  if (unit == "ep") {
    ASSIGN_OR_RETURN(const double epochs, ParseWithUnit(number, kTimes, kExpected));
    return Interval{Interval::Unit::kEpochs, epochs};
  }
  if (!unit.empty()) {
    ASSIGN_OR_RETURN(const double seconds, ParseWithUnit(text, kTimes, kExpected));
    return Interval{Interval::Unit::kSeconds, seconds};
  }
  const auto steps = ParseInt(text);
  if (!steps.ok() || *steps < 1) return Invalid("expected ", kExpected, ", got '", Printable(text), "'");
  return Interval{Interval::Unit::kSteps, static_cast<double>(*steps)};
}

absl::StatusOr<std::vector<std::string>> ParseList(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (parts.back().empty()) return Invalid("an empty name in a list");
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

absl::StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view text, std::string_view shape) {
  const size_t equal = text.find('=');
  if (equal == std::string_view::npos || equal == 0 || equal + 1 == text.size()) {
    return Invalid("expected ", shape, ", got '", Printable(text), "'");
  }
  return std::pair{std::string(text.substr(0, equal)), std::string(text.substr(equal + 1))};
}

std::string FormatWithCommas(int64_t n) {
  std::string digits = std::to_string(n < 0 ? -n : n);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, 1, ',');
  return n < 0 ? "-" + digits : digits;
}

std::string FormatRate(double per_second) {
  if (per_second >= 100) return FormatWithCommas(std::llround(per_second));
  return per_second >= 10 ? absl::StrFormat("%.1f", per_second) : absl::StrFormat("%.2g", per_second);
}

std::string FormatBytes(double bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int i = 0;
  for (; bytes >= 1024 && i < 4; ++i) bytes /= 1024;
  return absl::StrFormat("%.*f %s", i == 0 ? 0 : 1, bytes, kNames[i]);
}

std::string FormatSeconds(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 10) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

std::string FormatDuration(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.3g µs", 1e6 * seconds);
  return seconds < 1 ? absl::StrFormat("%.3g ms", 1e3 * seconds) : absl::StrFormat("%.3g s", seconds);
}

std::string FormatNumber(double x) { return absl::StrFormat("%.4g", x); }

}  // namespace onnxtrain
