#include "tools/onnxtrain/report/quality_html.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "tools/onnxtrain/report/html_page.h"

namespace onnxtrain::cli {
namespace {

constexpr int64_t kMatrixClasses = 25, kTableClasses = 60, kMostPairs = 20;
constexpr size_t kMostPlots = 12;

std::string Name(const std::vector<std::string>& names, int64_t c) {
  return c < static_cast<int64_t>(names.size()) ? names[c] : StrCat(c);
}

std::string Percent(double part) { return absl::StrFormat("%.1f %%", 100 * part); }
std::string Ratio(int64_t part, int64_t all) {
  return all > 0 ? Percent(static_cast<double>(part) / static_cast<double>(all)) : "–";
}

struct ClassCounts {
  int64_t id = 0, support = 0, predicted = 0, correct = 0;
  int64_t errors() const { return support + predicted - 2 * correct; }
};

// Counts samples by class, for the classes that are a label or a prediction of any sample, ascending.
std::vector<ClassCounts> CountClasses(const Quality& q) {
  std::map<int64_t, ClassCounts> counts;
  for (const auto& [pair, samples] : q.confusion) {
    const auto& [label, prediction] = pair;
    counts[label].support += samples;
    counts[prediction].predicted += samples;
    if (label == prediction) counts[label].correct += samples;
  }
  counts.erase(Quality::kNone);
  std::vector<ClassCounts> list;
  for (auto& [id, count] : counts) {
    count.id = id;
    list.push_back(count);
  }
  return list;
}

// Returns a table by class, limited to the classes with the most errors if there are many.
std::string ClassTable(const Quality& q, const std::vector<std::string>& names) {
  std::vector<ClassCounts> counts = CountClasses(q);
  std::string note;
  if (std::ssize(counts) > kTableClasses) {
    std::ranges::stable_sort(counts, std::greater(), &ClassCounts::errors);
    counts.resize(kTableClasses);
    note = StrCat("<p class=\"soft\">", counts.size(), " of ", q.classes, " classes, those with the most errors</p>\n");
  }
  const bool positions = q.kind == QualityKind::kPositions;
  std::vector<std::string> header = {"class", positions ? "positions" : "samples", "recall", "precision", "F1"};
  if (q.areas) header.emplace_back("IoU");
  std::vector<std::vector<std::string>> rows;
  for (const ClassCounts& c : counts) {
    rows.push_back({Name(names, c.id), FormatWithCommas(c.support), Ratio(c.correct, c.support),
                    Ratio(c.correct, c.predicted), Ratio(2 * c.correct, c.support + c.predicted)});
    if (q.areas) rows.back().push_back(Ratio(c.correct, c.correct + c.errors()));
  }
  return note + HtmlTable(header, rows, true);
}

// Returns the mean intersection over union of the classes that are a label or a prediction of any position.
double MeanIou(const Quality& q) {
  double sum = 0;
  const std::vector<ClassCounts> counts = CountClasses(q);
  for (const ClassCounts& c : counts)
    sum += static_cast<double>(c.correct) / static_cast<double>(c.correct + c.errors());
  return counts.empty() ? 0 : sum / static_cast<double>(counts.size());
}

// Draws the confusion matrix. Rows are labels; colors are shares of the row.
std::string Matrix(const Quality& q, const std::vector<std::string>& names) {
  std::string html =
      "<h3>Confusion matrix: labels in rows, predictions in columns</h3>\n<div class=\"scroll\"><table "
      "class=\"confusion\"><thead><tr><th></th>";
  for (int64_t c = 0; c < q.classes; ++c) StrAppend(&html, "<th>", EscapeHtml(Name(names, c)), "</th>");
  html += "</tr></thead>\n<tbody>\n";
  std::map<int64_t, int64_t> support;
  for (const ClassCounts& c : CountClasses(q)) support[c.id] = c.support;
  for (int64_t label = 0; label < q.classes; ++label) {
    StrAppend(&html, "<tr><th>", EscapeHtml(Name(names, label)), "</th>");
    for (int64_t c = 0; c < q.classes; ++c) {
      const int64_t n = q.Count(label, c);
      const double share = n > 0 ? static_cast<double>(n) / static_cast<double>(support[label]) : 0;
      const char* color = c == label ? "var(--c2)" : "var(--c1)";
      absl::StrAppendFormat(&html, "<td style=\"background:color-mix(in srgb, %s %.0f%%, transparent)\">%s</td>", color,
                            100 * std::sqrt(share) * 0.85, n > 0 ? StrCat(n) : "");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string ConfusedPairs(const Quality& q, const std::vector<std::string>& names) {
  struct Pair {
    int64_t label, prediction, count;
  };
  std::vector<Pair> pairs;
  for (const auto& [pair, count] : q.confusion) {
    if (pair.first != pair.second) pairs.push_back({pair.first, pair.second, count});
  }
  std::ranges::stable_sort(pairs, std::greater(), &Pair::count);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min<size_t>(pairs.size(), kMostPairs); ++i)
    rows.push_back({Name(names, pairs[i].label), Name(names, pairs[i].prediction), StrCat(pairs[i].count)});
  const char* counted = q.kind == QualityKind::kPositions ? "positions" : "samples";
  return rows.empty() ? "" : "<h3>Most confused</h3>\n" + HtmlTable({"label", "prediction", counted}, rows, false);
}

// Plots accuracy over confidence; perfect calibration is the diagonal.
std::string ReliabilityPlot(const Quality* before, const Quality& after) {
  const auto line = [](const Quality& q) {
    Series points;
    for (const ConfidenceBin& bin : q.bins) {
      const auto n = static_cast<double>(bin.samples);
      if (bin.samples > 0) points.emplace_back(bin.confidence / n, static_cast<double>(bin.correct) / n);
    }
    return points;
  };
  PlotSpec plot{.title = "accuracy over confidence", .lines = {}, .from_zero = true};
  plot.lines.push_back({.name = "perfect", .points = {{0, 0}, {1, 1}}});
  plot.lines.push_back({.name = "after", .points = line(after), .markers = true});
  if (before != nullptr) plot.lines.push_back({.name = "before", .points = line(*before), .markers = true});
  return LinePlot(plot);
}

std::string BeforeAndAfter(const Quality* before, const Quality& after) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* what, auto value) {
    rows.push_back({what, before != nullptr ? Percent(value(*before)) : "–", Percent(value(after))});
  };
  add("accuracy", [](const Quality& q) { return q.accuracy(); });
  if (after.areas) add("mean IoU", MeanIou);
  add("expected calibration error", [](const Quality& q) { return q.calibration_error(); });
  return HtmlTable({"", "before", "after"}, rows, true);
}

std::string TargetName(const std::vector<std::string>& names, size_t target, size_t targets) {
  if (names.size() == targets) return names[target];
  return targets == 1 ? "" : StrCat("target ", target);
}

std::string NumberTable(const Quality* before, const Quality& after, const std::vector<std::string>& names) {
  const size_t targets = after.results[0].labels.size();
  std::vector<std::vector<std::string>> rows;
  for (size_t t = 0; t < targets; ++t) {
    const NumberErrors now = ErrorsOf(after, t), then = before != nullptr ? ErrorsOf(*before, t) : NumberErrors();
    const auto change = [&](double NumberErrors::*field) {
      return before == nullptr ? FormatNumber(now.*field)
                               : StrCat(FormatNumber(then.*field), " → ", FormatNumber(now.*field));
    };
    rows.push_back({TargetName(names, t, targets), change(&NumberErrors::rmse), change(&NumberErrors::mae),
                    change(&NumberErrors::r2), FormatNumber(now.spread)});
  }
  return HtmlTable({"", "root mean square error", "mean absolute error", "R²", "standard deviation of the labels"},
                   rows, true);
}

std::string NumberPlots(const Quality* before, const Quality& after, const std::vector<std::string>& names) {
  const size_t targets = after.results[0].labels.size();
  std::string html;
  for (size_t t = 0; t < std::min(targets, kMostPlots); ++t) {
    const auto points = [&](const Quality& q) {
      Series series;
      for (const SampleResult& r : q.results) series.emplace_back(r.labels[t], r.predictions[t]);
      std::ranges::sort(series);
      return series;
    };
    const std::string name = TargetName(names, t, targets);
    PlotSpec plot{.title = StrCat(name, name.empty() ? "" : ": ", "prediction over label"), .lines = {}};
    const Series now = points(after);
    const double least = now.front().first, most = now.back().first;
    plot.lines.push_back({.name = "equal", .points = {{least, least}, {most, most}}});
    plot.lines.push_back({.name = "after", .points = now, .dots = true});
    if (before != nullptr) plot.lines.push_back({.name = "before", .points = points(*before), .dots = true});
    html += LinePlot(plot);
  }
  return "<div class=\"plots\">\n" + html + "</div>\n";
}

std::string Note(const Quality& q) {
  std::string text = StrCat(FormatWithCommas(q.samples), " samples of the evaluation data, at equal distances");
  if (q.positions > 0) StrAppend(&text, ", with ", FormatWithCommas(q.positions), " labels");
  return "<p class=\"soft\">" + text + "</p>\n";
}

}  // namespace

std::string QualityHtml(const Quality* before, const Quality& after, const std::vector<std::string>& names) {
  if (after.kind == QualityKind::kNumbers)
    return Note(after) + NumberTable(before, after, names) + NumberPlots(before, after, names);
  const bool texts = after.kind == QualityKind::kTexts;
  const bool lists_classes = !after.tokens && !texts;  // a vocabulary has too many
  std::string html = Note(after) + "<div class=\"plots\"><div>\n" + BeforeAndAfter(before, after) +
                     (lists_classes ? ClassTable(after, names) : "") + "</div>\n" + ReliabilityPlot(before, after) +
                     "</div>\n";
  if (after.kind == QualityKind::kLabels || texts) return html;
  return html + (after.classes <= kMatrixClasses ? Matrix(after, names) : ConfusedPairs(after, names));
}

}  // namespace onnxtrain::cli
