#include "tools/onnxtrain/report/memory_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "tools/onnxtrain/report/html_page.h"
#include "tools/onnxtrain/report/memory_timeline.h"

namespace onnxtrain::cli {
namespace {

constexpr double kWidth = 960, kHeight = 420, kLeft = 90, kTop = 44, kRight = 170, kBottom = 44;

struct KindStyle {
  RecomputeCostModel::Kind kind;
  const char* name;
  const char* color;
};
// Kinds, from the bottom of the stack.
constexpr KindStyle kStyles[] = {
    {RecomputeCostModel::kSaved, "saved for backward", "#4477aa"},
    {RecomputeCostModel::kRecomputed, "recomputed", "#ee7733"},
    {RecomputeCostModel::kForward, "forward, short-lived", "#88ccee"},
    {RecomputeCostModel::kBackward, "backward", "#999933"},
    {RecomputeCostModel::kWorkspace, "workspaces", "#bbbbbb"},
};

class Plot {
 public:
  Plot(std::vector<RecomputeCostModel::KindBytes> steps, double most) : steps_(std::move(steps)), most_(most) {}

  double X(double step) const {
    return kLeft + step / static_cast<double>(std::max<size_t>(1, steps_.size())) * (kWidth - kLeft - kRight);
  }
  double Y(double bytes) const { return kHeight - kBottom - bytes / most_ * (kHeight - kTop - kBottom); }

  // Draws one area per kind, stacked.
  std::string Areas() const {
    const std::vector<std::string> outlines = StackOutlines({
        .columns = steps_.size(),
        .layers = std::size(kStyles),
        .height = [&](size_t s, size_t layer) { return static_cast<double>(steps_[s][kStyles[layer].kind]); },
        .x = [&](size_t border) { return X(static_cast<double>(border)); },
        .y = [&](double bytes) { return Y(bytes); },
    });
    std::string svg;
    for (size_t i = 0; i < outlines.size(); ++i)
      absl::StrAppendFormat(&svg, "<polygon fill=\"%s\" points=\"%s\"/>\n", kStyles[i].color, outlines[i]);
    return svg;
  }

  std::string Axis() const {
    std::string svg;
    for (int i = 0; i <= 4; ++i) {
      const double bytes = most_ * i / 4;
      absl::StrAppendFormat(&svg,
                            "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>"
                            "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                            kLeft, kWidth - kRight, Y(bytes), Y(bytes), kLeft - 6, Y(bytes) + 4, FormatBytes(bytes));
    }
    return svg;
  }

  std::string VerticalLine(int32_t step, const char* text) const {
    return absl::StrFormat(
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"#333333\" stroke-dasharray=\"4 3\"/>"
        "<text x=\"%.1f\" y=\"%.0f\">%s</text>\n",
        X(step), X(step), kTop, kHeight - kBottom, X(step) + 4, kTop + 12, text);
  }

  std::string HorizontalLine(double bytes, const std::string& text) const {
    return absl::StrFormat(
        "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#aa3377\"/>"
        "<text x=\"%.0f\" y=\"%.1f\" fill=\"#aa3377\">%s</text>\n",
        kLeft, kWidth - kRight, Y(bytes), Y(bytes), kWidth - kRight + 6, Y(bytes) + 4, text);
  }

  static std::string Legend() {
    std::string svg;
    double y = kHeight / 2;
    for (auto style = std::rbegin(kStyles); style != std::rend(kStyles); ++style, y += 20) {
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
          kWidth - kRight + 8, y - 10, style->color, kWidth - kRight + 26, y, style->name);
    }
    return svg;
  }

 private:
  const std::vector<RecomputeCostModel::KindBytes> steps_;
  const double most_;
};

}  // namespace

std::string MemoryPlot(const std::string& title, const RecomputeCostModel& model, const RecomputeSchedule& recomputed,
                       size_t arena) {
  RecomputeSchedule marks = recomputed;
  marks.resize(model.graph().nodes().size());
  RecomputeTrace trace;
  model.Simulate(marks, &trace);
  const double most = 1.05 * std::max(static_cast<double>(arena), static_cast<double>(trace.peak));
  const Plot plot(model.SplitByKind(trace), std::max(1.0, most));
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%.0f\" y=\"22\" font-size=\"15\">%s</text>\n",
      kWidth, kHeight, kLeft, EscapeHtml(title));
  svg += plot.Axis() + plot.Areas() +
         plot.HorizontalLine(static_cast<double>(arena), "arena " + FormatBytes(static_cast<double>(arena)));
  svg += plot.VerticalLine(trace.backward, "backward pass") + Plot::Legend();
  absl::StrAppendFormat(&svg, "<text x=\"%.0f\" y=\"%.0f\">nodes in the order in which they run (%d)</text>\n</svg>\n",
                        kLeft, kHeight - 16, trace.runs.size());
  return svg;
}

}  // namespace onnxtrain::cli
