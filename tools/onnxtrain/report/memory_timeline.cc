#include "tools/onnxtrain/report/memory_timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_format.h"
#include "backends/memory_plan.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/passes/rematerialize.h"
#include "optim/step/loss.h"
#include "tools/onnxtrain/report/html_page.h"

namespace onnxtrain::cli {
namespace {

void AppendEdge(const StackedAreas& a, size_t from, size_t to, double height, std::string* outline) {
  absl::StrAppendFormat(outline, "%.1f,%.1f %.1f,%.1f ", a.x(from), a.y(height), a.x(to), a.y(height));
}

}  // namespace

std::vector<std::string> StackOutlines(const StackedAreas& a) {
  std::vector<double> base(a.columns, 0);
  std::vector<std::string> outlines(a.layers);
  for (size_t layer = 0; layer < a.layers; ++layer) {
    std::vector<double> top = base;
    for (size_t c = 0; c < a.columns; ++c) {
      top[c] += a.height(c, layer);
      AppendEdge(a, c, c + 1, top[c], &outlines[layer]);
    }
    for (size_t c = a.columns; c-- > 0;) AppendEdge(a, c + 1, c, base[c], &outlines[layer]);
    base = std::move(top);
  }
  return outlines;
}

namespace {

constexpr size_t kMostNodes = 20'000, kMostTensors = 20, kMostColumns = 512;

constexpr const char* kKindNames[] = {"saved for the backward pass", "forward", "backward", "workspaces"};

// Values that share bytes: views, and results that replace an operand in place.
struct Occupant {
  ValueId value = kNoValue;  // the first one
  size_t offset = 0, bytes = 0;
  int32_t first = 0, last = 0;
};

class Tracer {
 public:
  Tracer(const Graph& graph, const MemoryPlan& plan) : graph_(graph), plan_(plan), position_(graph.nodes().size(), -1) {
    for (size_t i = 0; i < plan.order.size(); ++i) position_[plan.order[i]] = static_cast<int32_t>(i);
  }

  MemoryTimeline Trace() {
    MemoryTimeline t{.live = {plan_.order.size(), {0, 0, 0, 0}}, .arena = static_cast<int64_t>(plan_.arena_bytes)};
    t.backward = FindBackward();
    const std::vector<Occupant> occupants = Merge(FindOccupants());
    for (const Occupant& o : occupants) {
      for (int32_t p = o.first; p <= o.last; ++p)
        t.live[p][static_cast<size_t>(KindOf(o, t.backward))] += static_cast<int64_t>(o.bytes);
    }
    for (size_t p = 0; p < plan_.order.size(); ++p)
      t.live[p][static_cast<size_t>(TensorKind::kWorkspace)] += WorkspaceAt(p);
    FindPeak(occupants, &t);
    return t;
  }

 private:
  int32_t FindBackward() const {
    const std::vector<bool> backward = DependsOn(graph_, kInverseDenominatorFeed);
    const auto first = std::ranges::find_if(plan_.order, [&](int32_t node) { return backward[node]; });
    return static_cast<int32_t>(first - plan_.order.begin());
  }

  int64_t WorkspaceAt(size_t position) const {
    const std::vector<size_t>& bytes = plan_.workspace_bytes;
    return bytes.empty() ? 0 : static_cast<int64_t>(bytes[plan_.order[position]]);
  }

  std::vector<Occupant> FindOccupants() const {
    const auto users = ComputeUsers(graph_);
    std::vector<Occupant> occupants;
    for (const int32_t n : plan_.order) {
      for (const ValueId v : graph_.nodes()[n].outputs) {
        if (plan_.places[v].where != Place::Where::kArena) continue;
        Occupant o{v, plan_.places[v].offset, graph_.type(v).bytes(), position_[n], position_[n]};
        for (const int32_t user : users[v]) o.last = std::max(o.last, position_[user]);
        for (const Copy& copy : plan_.copies) {
          if (copy.from == plan_.places[v]) o.last = static_cast<int32_t>(plan_.order.size()) - 1;
        }
        occupants.push_back(o);
      }
    }
    return occupants;
  }

  // Joins occupants of the same bytes whose live ranges overlap.
  static std::vector<Occupant> Merge(std::vector<Occupant> occupants) {
    std::ranges::stable_sort(occupants, {}, [](const Occupant& o) { return std::pair(o.offset, o.first); });
    std::vector<Occupant> merged;
    for (const Occupant& o : occupants) {
      const bool same = !merged.empty() && merged.back().offset == o.offset && o.first <= merged.back().last;
      if (!same) {
        merged.push_back(o);
        continue;
      }
      merged.back().bytes = std::max(merged.back().bytes, o.bytes);
      merged.back().last = std::max(merged.back().last, o.last);
    }
    return merged;
  }

  static TensorKind KindOf(const Occupant& o, int32_t backward) {
    if (o.first >= backward) return TensorKind::kBackward;
    return o.last >= backward ? TensorKind::kSaved : TensorKind::kForward;
  }

  void FindPeak(const std::vector<Occupant>& occupants, MemoryTimeline* t) const {
    const auto total = [](const auto& kinds) { return std::accumulate(kinds.begin(), kinds.end(), int64_t{0}); };
    const auto peak = std::ranges::max_element(t->live, {}, total);
    t->peak = static_cast<int32_t>(peak - t->live.begin());
    for (const Occupant& o : occupants) {
      if (o.first <= t->peak && t->peak <= o.last) t->at_peak.push_back(Describe(o, t->backward));
    }
    if (const int64_t bytes = peak == t->live.end() ? 0 : WorkspaceAt(t->peak); bytes > 0) {
      const Node& node = graph_.nodes()[plan_.order[t->peak]];
      t->at_peak.push_back({node.source, node.op, "workspace", TensorKind::kWorkspace, bytes, t->peak, t->peak});
    }
    std::ranges::stable_sort(t->at_peak, std::greater(), &LiveTensor::bytes);
  }

  LiveTensor Describe(const Occupant& o, int32_t backward) const {
    const Value& value = graph_.value(o.value);
    const Node& node = graph_.nodes()[value.node];
    return {*(value.name->empty() ? node.source : value.name),
            node.op,
            ToString(value.type),
            KindOf(o, backward),
            static_cast<int64_t>(o.bytes),
            o.first,
            o.last};
  }

  const Graph& graph_;
  const MemoryPlan& plan_;
  std::vector<int32_t> position_;  // by node
};

constexpr double kWidth = 1100, kHeight = 330, kLeft = 80, kRight = 12, kTop = 28, kBottom = 30;

// Draws stacked areas by kind. A column that covers several positions shows the one with the most bytes.
class Plot {
 public:
  explicit Plot(const MemoryTimeline& timeline) : timeline_(timeline) {
    const size_t positions = timeline.live.size(), columns = std::min(positions, kMostColumns);
    const auto total = [](const auto& kinds) { return std::accumulate(kinds.begin(), kinds.end(), int64_t{0}); };
    for (size_t c = 0; c < columns; ++c) {
      const auto begin = timeline.live.begin() + static_cast<std::ptrdiff_t>(positions * c / columns);
      const auto end = timeline.live.begin() + static_cast<std::ptrdiff_t>(positions * (c + 1) / columns);
      columns_.push_back(*std::ranges::max_element(begin, end, {}, total));
      most_ = std::max(most_, static_cast<double>(total(columns_.back())));
    }
    most_ = std::max(most_, static_cast<double>(timeline.arena));
  }

  std::string Svg() const {
    std::string svg = absl::StrFormat("<svg class=\"plot\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", kWidth, kHeight);
    for (int i = 0; i <= 4; ++i) {
      const double bytes = most_ * i / 4;
      absl::StrAppendFormat(
          &svg,
          "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" "
          "x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
          kLeft, kWidth - kRight, Y(bytes), Y(bytes), kLeft - 6, Y(bytes) + 4, FormatBytes(bytes));
    }
    svg += Areas() + Lines();
    absl::StrAppendFormat(&svg,
                          "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\">%d nodes in the order in which they run</text>\n",
                          kLeft, kHeight - 10, timeline_.live.size());
    return svg + "</svg>\n";
  }

 private:
  double X(double part) const { return kLeft + part * (kWidth - kLeft - kRight); }
  double Y(double bytes) const { return kHeight - kBottom - bytes / most_ * (kHeight - kTop - kBottom); }

  std::string Areas() const {
    const std::vector<std::string> outlines = StackOutlines({
        .columns = columns_.size(),
        .layers = kTensorKinds,
        .height = [&](size_t c, size_t kind) { return static_cast<double>(columns_[c][kind]); },
        .x = [&](size_t border) { return X(static_cast<double>(border) / static_cast<double>(columns_.size())); },
        .y = [&](double bytes) { return Y(bytes); },
    });
    std::string svg;
    for (size_t kind = 0; kind < outlines.size(); ++kind)
      absl::StrAppendFormat(&svg, "<polygon class=\"f%d\" points=\"%s\"/>\n", kind, outlines[kind]);
    return svg;
  }

  double XOf(int32_t position) const {
    return X(static_cast<double>(position) / static_cast<double>(std::max<size_t>(1, timeline_.live.size())));
  }

  // Draws marker lines, with labels on different sides if they are close.
  std::string Lines() const {
    constexpr double kClose = 70;
    const double distance = XOf(timeline_.peak) - XOf(timeline_.backward);
    const bool close = std::abs(distance) < kClose;
    const char* const left = close ? "end" : "middle";
    const char* const right = close ? "start" : "middle";
    return Line(timeline_.backward, "backward pass", distance < 0 ? right : left) +
           Line(timeline_.peak, "peak", distance < 0 ? left : right);
  }

  std::string Line(int32_t position, const char* text, const char* anchor) const {
    const double x = XOf(position);
    return absl::StrFormat(
        "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke-dasharray=\"4 3\"/><text "
        "class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">%s</text>\n",
        x, x, kTop, kHeight - kBottom, x, kTop - 8, anchor, text);
  }

  const MemoryTimeline& timeline_;
  std::vector<std::array<int64_t, kTensorKinds>> columns_;
  double most_ = 1;
};

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string Key() {
  std::string html = "<p class=\"key\">";
  for (size_t kind = 0; kind < kTensorKinds; ++kind)
    StrAppend(&html, "<i class=\"b", kind, "\"></i>", kKindNames[kind]);
  return html + "</p>\n";
}

std::string PeakTable(const MemoryTimeline& t) {
  int64_t total = 0, rest = 0;
  std::vector<std::vector<std::string>> rows;
  for (const LiveTensor& tensor : t.at_peak) {
    total += tensor.bytes;
    if (rows.size() == kMostTensors) {
      rest += tensor.bytes;
      continue;
    }
    rows.push_back({tensor.name, Bytes(tensor.bytes), tensor.type, tensor.op,
                    kKindNames[static_cast<size_t>(tensor.kind)], StrCat(tensor.first, "–", tensor.last)});
  }
  std::string html = StrCat("<h3>Live at the peak: ", Bytes(total), " of an arena of ", Bytes(t.arena), "</h3>\n");
  html += HtmlTable({"tensor", "bytes", "type", "made by", "kind", "nodes"}, rows, false);
  if (rest > 0)
    StrAppend(&html, "<p class=\"soft\">and ", t.at_peak.size() - kMostTensors, " more with ", Bytes(rest), "</p>\n");
  return html;
}

}  // namespace

std::optional<MemoryTimeline> TraceMemory(const Program& program) {
  const MemoryPlan* plan = program.plan();
  if (plan == nullptr || plan->order.empty() || plan->order.size() > kMostNodes) return std::nullopt;
  return Tracer(program.graph(), *plan).Trace();
}

std::string MemoryTimelineHtml(const MemoryTimeline& timeline) {
  return Plot(timeline).Svg() + Key() + PeakTable(timeline);
}

namespace {

constexpr double kPlanWidth = 960, kPlanHeight = 420, kPlanLeft = 90, kPlanTop = 44, kPlanRight = 170, kPlanBottom = 44;

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

// Draws the plan of a step: stacked areas by kind, over the nodes.
class PlanPlot {
 public:
  PlanPlot(std::vector<RecomputeCostModel::KindBytes> steps, double most) : steps_(std::move(steps)), most_(most) {}

  double X(double step) const {
    return kPlanLeft +
           step / static_cast<double>(std::max<size_t>(1, steps_.size())) * (kPlanWidth - kPlanLeft - kPlanRight);
  }
  double Y(double bytes) const {
    return kPlanHeight - kPlanBottom - bytes / most_ * (kPlanHeight - kPlanTop - kPlanBottom);
  }

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
                            kPlanLeft, kPlanWidth - kPlanRight, Y(bytes), Y(bytes), kPlanLeft - 6, Y(bytes) + 4,
                            FormatBytes(bytes));
    }
    return svg;
  }

  std::string VerticalLine(int32_t step, const char* text) const {
    return absl::StrFormat(
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"#333333\" stroke-dasharray=\"4 3\"/>"
        "<text x=\"%.1f\" y=\"%.0f\">%s</text>\n",
        X(step), X(step), kPlanTop, kPlanHeight - kPlanBottom, X(step) + 4, kPlanTop + 12, text);
  }

  std::string HorizontalLine(double bytes, const std::string& text) const {
    return absl::StrFormat(
        "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#aa3377\"/>"
        "<text x=\"%.0f\" y=\"%.1f\" fill=\"#aa3377\">%s</text>\n",
        kPlanLeft, kPlanWidth - kPlanRight, Y(bytes), Y(bytes), kPlanWidth - kPlanRight + 6, Y(bytes) + 4, text);
  }

  static std::string Legend() {
    std::string svg;
    double y = kPlanHeight / 2;
    for (auto style = std::rbegin(kStyles); style != std::rend(kStyles); ++style, y += 20) {
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
          kPlanWidth - kPlanRight + 8, y - 10, style->color, kPlanWidth - kPlanRight + 26, y, style->name);
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
  const PlanPlot plot(model.SplitByKind(trace), std::max(1.0, most));
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%.0f\" y=\"22\" font-size=\"15\">%s</text>\n",
      kPlanWidth, kPlanHeight, kPlanLeft, EscapeHtml(title));
  svg += plot.Axis() + plot.Areas() +
         plot.HorizontalLine(static_cast<double>(arena), "arena " + FormatBytes(static_cast<double>(arena)));
  svg += plot.VerticalLine(trace.backward, "backward pass") + PlanPlot::Legend();
  absl::StrAppendFormat(&svg, "<text x=\"%.0f\" y=\"%.0f\">nodes in the order in which they run (%d)</text>\n</svg>\n",
                        kPlanLeft, kPlanHeight - 16, trace.runs.size());
  return svg;
}

}  // namespace onnxtrain::cli
