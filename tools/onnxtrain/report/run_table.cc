#include "tools/onnxtrain/report/run_table.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>
#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "optim/record/telemetry/summary.h"
#include "tools/onnxtrain/flags/flags.h"

namespace onnxtrain::cli {
namespace {

struct CharRange {
  uint32_t first, last;
  size_t columns;
};
// Wide blocks of Unicode's East Asian Width (UAX #11), and blocks of combining marks; ascending.
constexpr CharRange kRanges[] = {
    {0x0300, 0x036f, 0},   {0x1100, 0x115f, 2},   {0x1ab0, 0x1aff, 0}, {0x1dc0, 0x1dff, 0},   {0x200b, 0x200f, 0},
    {0x20d0, 0x20ff, 0},   {0x2e80, 0x303e, 2},   {0x3041, 0x33ff, 2}, {0x3400, 0x4dbf, 2},   {0x4e00, 0xa4cf, 2},
    {0xa960, 0xa97f, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2}, {0xfe00, 0xfe0f, 0},   {0xfe20, 0xfe2f, 0},
    {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2}, {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2},
    {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2},
};

size_t CharColumns(uint32_t c) {
  const auto range = std::ranges::upper_bound(kRanges, c, {}, &CharRange::first);
  if (range == std::begin(kRanges)) return 1;
  return c <= std::prev(range)->last ? std::prev(range)->columns : 1;
}

// Removes the character at the beginning of *text; a byte that is not UTF-8 counts as one.
uint32_t TakeChar(std::string_view* text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>((*text)[i]); };
  const uint32_t lead = byte(0);
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  uint32_t c = length == 1 ? lead : lead & (0x7fu >> length);
  size_t taken = 1;
  for (; taken < std::min(length, text->size()) && (byte(taken) & 0xc0) == 0x80; ++taken)
    c = c << 6 | (byte(taken) & 0x3f);
  text->remove_prefix(taken);
  return taken == length ? c : 0xfffd;
}

}  // namespace

size_t TextColumns(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) columns += CharColumns(TakeChar(&text));
  return columns;
}

std::string ClipText(std::string_view text, size_t columns) {
  if (TextColumns(text) <= columns) return std::string(text);
  std::string_view rest = text;
  size_t used = 1, end = 0;  // the ellipsis takes one
  while (!rest.empty()) {
    used += CharColumns(TakeChar(&rest));
    if (used > columns) break;
    end = text.size() - rest.size();
  }
  return std::string(text.substr(0, end)) + "…";
}

namespace {

using Json = nlohmann::json;

struct Row {
  const char* label;
  const char* path;  // FindSummaryMetric
  std::string (*format)(double);
};

std::string Whole(double x) { return FormatWithCommas(static_cast<int64_t>(x)); }
std::string Percent(double x) { return absl::StrFormat("%.2f %%", 100 * x); }

const Row kRows[] = {{"updates", "steps", Whole},
                     {"epochs", "epochs", FormatNumber},
                     {"training loss", "final_loss", FormatNumber},
                     {"evaluation loss", "eval.loss", FormatNumber},
                     {"accuracy", "eval.accuracy", Percent},
                     {"time", "seconds", FormatSeconds},
                     {"samples/s", "samples_per_second", FormatRate},
                     {"step, median", "step_seconds.median", FormatDuration},
                     {"peak memory", "measured_peak_bytes", FormatBytes},
                     {"skipped updates", "skipped_steps", Whole}};

// Returns the last value in the metrics of a run, which has no summary yet.
std::optional<double> LastOf(const RunRecord& run, const std::string& path) {
  static const std::map<std::string, std::pair<bool, const char*>> kSeries = {
      {"final_loss", {false, "loss"}}, {"epochs", {false, "epoch"}},
      {"eval.loss", {true, "loss"}},   {"eval.accuracy", {true, "accuracy"}},
      {"seconds", {false, "seconds"}}, {"samples_per_second", {false, "samples_per_second"}}};
  if (path == "steps") {
    const Series* s = FindSeries(run.train, "lr");
    return s != nullptr && !s->empty() ? std::optional(s->back().first) : std::nullopt;
  }
  const auto found = kSeries.find(path);
  if (found == kSeries.end()) return std::nullopt;
  const Series* s = FindSeries(found->second.first ? run.eval : run.train, found->second.second);
  return s != nullptr && !s->empty() ? std::optional(s->back().second) : std::nullopt;
}

std::optional<double> Value(const RunRecord& run, const std::string& path) {
  return run.running || run.summary.empty() ? LastOf(run, path) : FindSummaryMetric(run.summary, path);
}

void AddRow(const std::vector<RunRecord>& runs, const std::string& label, const std::string& path,
            std::string (*format)(double), RunTable* table) {
  std::vector<std::string> row = {label};
  bool any = false;
  for (const RunRecord& run : runs) {
    const auto value = Value(run, path);
    any |= value.has_value();
    row.push_back(value ? format(*value) : "–");
  }
  if (any) table->rows.push_back(std::move(row));
}

// Formats a value as for a flag, with list elements separated by blanks.
std::string SettingText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return WriteJson(value);
  std::string text;
  for (const Json& part : value) StrAppend(&text, text.empty() ? "" : " ", SettingText(part));
  return text;
}

std::map<std::string, std::string> Settings(const RunRecord& run) {
  const Json summary = ParseJson(run.summary);
  std::map<std::string, std::string> settings;
  if (!summary.is_object() || !summary.contains("config")) return settings;
  for (const auto& [name, value] : summary["config"].items()) settings[name] = SettingText(value);
  settings.erase("out");
  return settings;
}

void AddSettings(const std::vector<RunRecord>& runs, RunTable* table) {
  std::vector<std::map<std::string, std::string>> all;
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    all.push_back(Settings(run));
    for (const auto& [name, value] : all.back()) names.insert(name);
  }
  for (const std::string& name : names) {
    std::vector<std::string> row = {FormatFlag(name)};
    std::set<std::string> values;
    for (const auto& settings : all) {
      const auto found = settings.find(name);
      row.push_back(found == settings.end() ? "–" : found->second);
      values.insert(row.back());
    }
    if (values.size() > 1) table->rows.push_back(std::move(row));
  }
}

constexpr size_t kGap = 2;

// Clips cells so that each column fits beside the first one. Returns the width of each column.
std::vector<size_t> FitColumns(std::vector<std::vector<std::string>>* lines, size_t width) {
  std::vector<size_t> widths(lines->front().size());
  for (size_t c = 0; c < widths.size(); ++c) {
    const size_t used = c == 0 ? 0 : widths[0] + kGap, most = width > used + kGap ? width - used : kGap;
    for (auto& line : *lines) {
      line[c] = ClipText(line[c], most);
      widths[c] = std::max(widths[c], TextColumns(line[c]));
    }
  }
  return widths;
}

// Appends the first column, left-aligned, and columns [first, end).
void AppendBlock(const std::vector<std::vector<std::string>>& lines, const std::vector<size_t>& widths, size_t first,
                 size_t end, std::string* text) {
  const auto pad = [&](const std::string& cell, size_t c) { return std::string(widths[c] - TextColumns(cell), ' '); };
  for (const auto& line : lines) {
    StrAppend(text, line[0], pad(line[0], 0));
    for (size_t c = first; c < end; ++c) StrAppend(text, std::string(kGap, ' '), pad(line[c], c), line[c]);
    *text += "\n";
  }
}

}  // namespace

RunTable CompareRuns(const std::vector<RunRecord>& runs) {
  RunTable table{.header = {""}};
  for (const RunRecord& run : runs) {
    table.header.push_back(StrCat(RunName(run), run.running ? " (running)" : ""));
  }
  for (const Row& row : kRows) AddRow(runs, row.label, row.path, row.format, &table);
  for (const std::string& name : OtherMetrics(runs)) AddRow(runs, name, "eval." + name, FormatNumber, &table);
  AddSettings(runs, &table);
  return table;
}

std::string FormatTable(const RunTable& table, size_t width) {
  std::vector<std::vector<std::string>> lines = {table.header};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  const std::vector<size_t> widths = FitColumns(&lines, width);
  std::string text;
  for (size_t first = 1, end = 1; first < widths.size(); first = end) {
    size_t used = widths[0] + kGap + widths[end++];
    while (end < widths.size() && used + kGap + widths[end] <= width) used += kGap + widths[end++];
    if (first > 1) text += "\n";
    AppendBlock(lines, widths, first, end, &text);
  }
  return text;
}

}  // namespace onnxtrain::cli
