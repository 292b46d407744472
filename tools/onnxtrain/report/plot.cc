#include "tools/onnxtrain/report/html_page.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"

namespace onnxtrain::cli {
namespace {

constexpr double kWidth = 560, kHeight = 260, kLeft = 64, kRight = 12, kTop = 34, kBottom = 30;
constexpr int kColors = 6;

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  void Add(double x) {
    least = std::min(least, x);
    most = std::max(most, x);
  }
};

// Keeps the least and the greatest point of every group, in their order.
Series Thinned(const Series& points, size_t most) {
  if (points.size() <= most) return points;
  const size_t group = (2 * points.size() + most - 1) / most;
  Series thinned;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(points.size(), begin + group));
    const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
    auto [least, greatest] = std::minmax_element(first, last, by_value);
    if (least > greatest) std::swap(least, greatest);
    thinned.push_back(*least);
    if (least != greatest) thinned.push_back(*greatest);
  }
  return thinned;
}

// Returns the moving average over a twentieth of the points.
Series Smoothed(const Series& points) {
  const auto half = static_cast<std::ptrdiff_t>(points.size() / 40);
  const auto size = static_cast<std::ptrdiff_t>(points.size());
  std::vector<double> sums = {0};
  for (const auto& [x, y] : points) sums.push_back(sums.back() + y);
  Series smoothed = points;
  for (std::ptrdiff_t i = 0; i < size; ++i) {
    const std::ptrdiff_t reach = std::min({half, i, size - 1 - i});  // symmetric: the ends are not bent
    smoothed[i].second = (sums[i + reach + 1] - sums[i - reach]) / static_cast<double>(2 * reach + 1);
  }
  return smoothed;
}

class Plot {
 public:
  explicit Plot(const PlotSpec& spec) : spec_(spec) {
    for (const PlotLine& line : spec.lines) {
      for (const auto& [x, y] : line.points) {
        x_.Add(ScaleX(x));
        y_.Add(y);
      }
    }
    log_ = spec.log_y && y_.least > 0 && y_.most > 2 * y_.least;
    if (spec.from_zero) y_.least = std::min(0.0, y_.least);
    if (y_.most == y_.least) {
      const double margin = y_.most == 0 ? 1 : 0.1 * std::abs(y_.most);
      y_.Add(y_.most + margin);
      if (!spec.from_zero && !log_) y_.Add(y_.least - margin);
    }
    if (x_.most == x_.least) x_.Add(x_.least + 1);
  }

  std::string Svg() const {
    std::string svg = absl::StrFormat(
        "<svg class=\"plot\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<text class=\"title\" x=\"%.0f\" "
        "y=\"18\">%s</text>\n",
        kWidth, kHeight, kLeft, EscapeHtml(spec_.title));
    svg += YAxis() + XAxis() + Legend();
    for (size_t i = 0; i < spec_.lines.size(); ++i) svg += Line(spec_.lines[i], static_cast<int>(i) % kColors);
    return svg + "</svg>\n";
  }

 private:
  double ScaleX(double x) const { return spec_.log_x ? std::log10(x) : x; }
  double X(double x) const { return kLeft + (ScaleX(x) - x_.least) / (x_.most - x_.least) * (kWidth - kLeft - kRight); }
  double Scale(double y) const { return log_ ? std::log(y) : y; }
  double Y(double y) const {
    const double part = (Scale(y) - Scale(y_.least)) / (Scale(y_.most) - Scale(y_.least));
    return kHeight - kBottom - part * (kHeight - kTop - kBottom);
  }

  std::vector<double> YTicks() const {
    if (!log_) return Ticks(y_.least, y_.most, 4);
    std::vector<double> ticks;
    for (double power = std::pow(10, std::floor(std::log10(y_.least))); power <= y_.most; power *= 10) {
      for (const double digit : {1, 2, 5}) {
        if (digit * power >= y_.least && digit * power <= y_.most) ticks.push_back(digit * power);
      }
    }
    while (ticks.size() > 7) {  // many decades: every second or third tick
      std::vector<double> fewer;
      for (size_t i = 0; i < ticks.size(); i += 3) fewer.push_back(ticks[i]);
      ticks = std::move(fewer);
    }
    return ticks.size() > 1 ? ticks : Ticks(y_.least, y_.most, 4);
  }

  std::string YAxis() const {
    std::string svg;
    for (const double tick : YTicks()) {
      absl::StrAppendFormat(&svg,
                            "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                            "<text class=\"tick\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                            kLeft, kWidth - kRight, Y(tick), Y(tick), kLeft - 6, Y(tick) + 4, TickText(tick));
    }
    return svg;
  }

  std::string XAxis() const {
    std::string svg;
    for (double tick : Ticks(x_.least, x_.most, 5)) {
      if (spec_.log_x) tick = std::pow(10, tick);
      const std::string text = TickText(tick);
      // Keeps a long number within the right edge of the picture.
      const double half = 4 * static_cast<double>(text.size()), middle = std::min(X(tick), kWidth - half);
      absl::StrAppendFormat(&svg, "<text class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
                            middle, kHeight - kBottom + 16, text);
    }
    return svg + absl::StrFormat("<line class=\"axis\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>\n", kLeft,
                                 kWidth - kRight, kHeight - kBottom, kHeight - kBottom);
  }

  static std::string TickText(double x) {
    for (const auto& [unit, suffix] : {std::pair(1e9, "G"), {1e6, "M"}, {1e4, "k"}}) {
      if (std::abs(x) >= unit && std::abs(x) < 1e12)
        return absl::StrFormat("%.4g%s", x / (unit == 1e4 ? 1e3 : unit), suffix);
    }
    if (x != 0 && (std::abs(x) >= 1e12 || std::abs(x) < 1e-3)) return absl::StrFormat("%.2g", x);
    return absl::StrFormat("%.6g", x);
  }

  // Right-aligned in the line of the title.
  std::string Legend() const {
    std::string entries;
    for (size_t i = 0; i < spec_.lines.size() && spec_.lines.size() > 1; ++i) {
      absl::StrAppendFormat(&entries, "<tspan class=\"f%d\">%s%s</tspan>", static_cast<int>(i) % kColors,
                            i == 0 ? "" : "   ", EscapeHtml("● " + spec_.lines[i].name));
    }
    return absl::StrFormat(
        "<text class=\"legend\" x=\"%.0f\" y=\"18\" text-anchor=\"end\" xml:space=\"preserve\">%s"
        "</text>\n",
        kWidth - kRight, entries);
  }

  std::string Polyline(const Series& points, int color, const char* extra) const {
    std::string at;
    for (const auto& [x, y] : Thinned(points, 1000)) absl::StrAppendFormat(&at, "%.1f,%.1f ", X(x), Y(y));
    return absl::StrFormat("<polyline class=\"s%d%s\" points=\"%s\"/>\n", color, extra, at);
  }

  std::string Line(const PlotLine& line, int color) const {
    constexpr size_t kManyPoints = 80;
    if (line.points.empty()) return "";
    if (line.dots) return Circles(line.points, color, 2);
    const bool smooth = line.smooth && line.points.size() >= kManyPoints;
    std::string svg = Polyline(line.points, color, smooth ? " faint" : "");
    if (smooth) svg += Polyline(Smoothed(line.points), color, "");
    if (!line.markers || line.points.size() > kManyPoints) return svg;
    return svg + Circles(line.points, color, 3);
  }

  std::string Circles(const Series& points, int color, int radius) const {
    std::string svg;
    for (const auto& [x, y] : points) {
      absl::StrAppendFormat(&svg, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>\n", color, X(x), Y(y),
                            radius);
    }
    return svg;
  }

  const PlotSpec& spec_;
  Range x_, y_;
  bool log_ = false;
};

}  // namespace

std::vector<double> Ticks(double least, double most, int count) {
  const double rough = (most - least) / count, power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {5, 2, 1}) {
    if (digit * power >= rough) step = digit * power;
  }
  std::vector<double> ticks;
  // Adding 0 turns -0 into 0. The ends may be rounded to float32.
  for (double i = std::ceil(least / step - 1e-6); i * step <= most + 1e-6 * step; ++i) ticks.push_back(i * step + 0.0);
  return ticks;
}

std::string LinePlot(const PlotSpec& spec) {
  const bool visible = std::ranges::any_of(spec.lines, [](const PlotLine& line) { return line.points.size() > 1; });
  return visible ? Plot(spec).Svg() : "";
}

namespace {

constexpr size_t kLabel = 10;  // columns

// U+2800 and a bit per dot.
std::string Braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// Returns the mean of the values in each of `columns` parts; a part without values repeats the previous one.
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
