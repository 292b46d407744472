#include "tools/onnxtrain/report/terminal_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "optim/record/telemetry/format.h"

namespace onnxtrain::cli {
namespace {

constexpr size_t kLabel = 10;  // columns

// U+2800 and a bit per dot.
std::string Braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// The mean of the values that fall into each of `columns` parts; a part without values has that before it.
std::vector<double> Resampled(const Series& series, size_t columns) {
  const double first = series.front().first, span = series.back().first - first;
  std::vector<double> sums(columns, 0), counts(columns, 0);
  for (const auto& [x, y] : series) {
    const double part = span > 0 ? (x - first) / span : 0;
    const size_t c = std::min(columns - 1, static_cast<size_t>(part * static_cast<double>(columns)));
    sums[c] += y;
    counts[c] += 1;
  }
  std::vector<double> means(columns);
  for (size_t c = 0; c < columns; ++c)
    means[c] = counts[c] > 0 ? sums[c] / counts[c] : c > 0 ? means[c - 1] : series.front().second;
  return means;
}

}  // namespace

std::string PlotNumber(double x) {
  constexpr double kManyDigits = 1e4, kTooMany = 1e9;
  const double size = std::abs(x);
  return size >= kManyDigits && size < kTooMany ? FormatWithCommas(std::llround(x)) : FormatNumber(x);
}

std::vector<std::string> TerminalPlot(const Series& series, size_t width, size_t height) {
  if (series.empty() || width <= kLabel + 2 || height == 0) return {};
  const size_t columns = 2 * (width - kLabel - 1), rows = 4 * height;
  std::vector<double> values = Resampled(series, columns);
  const auto [least, most] = std::ranges::minmax(values);
  const bool log = least > 0 && most > 100 * least;
  const auto scale = [&](double y) { return log ? std::log(y) : y; };
  const double low = scale(least), range = scale(most) - low;
  std::vector<unsigned> dots(width * height, 0);
  constexpr unsigned kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  for (size_t x = 0; x < columns; ++x) {
    const double part = range > 0 ? (scale(values[x]) - low) / range : 0.5;
    const auto y = static_cast<size_t>(std::lround((1 - part) * static_cast<double>(rows - 1)));
    dots[y / 4 * width + x / 2] |= kBits[x % 2][y % 4];
  }
  std::vector<std::string> lines;
  for (size_t row = 0; row < height; ++row) {
    const bool labelled = row == 0 || row + 1 == height;
    std::string line = absl::StrFormat("%*s ", kLabel, labelled ? PlotNumber(row == 0 ? most : least) : "");
    for (size_t x = 0; x < columns / 2; ++x) line += Braille(dots[row * width + x]);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace onnxtrain::cli
