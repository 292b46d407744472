#include "optim/record/telemetry/format.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace onnxtrain {

std::string FormatWithCommas(int64_t n) {
  std::string digits = std::to_string(n < 0 ? -n : n);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, 1, ',');
  return n < 0 ? "-" + digits : digits;
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
