#include "tools/onnxtrain/report/html_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "optim/plan/data_setup.h"
#include "optim/record/telemetry/summary.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/html_page.h"
#include "tools/onnxtrain/report/quality_html.h"
#include "tools/onnxtrain/report/run_table.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::json;

Json ParseSummary(const RunRecord& run) {
  const Json json = ParseJson(run.summary);
  return json.is_object() ? json : Json::object();
}

std::string TextOf(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

double NumberOf(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
}

std::string Card(const std::string& value, const std::string& label) {
  return StrCat("<div class=\"card\"><b>", EscapeHtml(value), "</b><span>", EscapeHtml(label), "</span></div>\n");
}

// Shows a metric before and after training: "93.1 % → 98.2 %".
std::string ChangeCard(const Json& summary, const char* key, const char* label, bool percent) {
  const auto format = [&](double x) { return percent ? absl::StrFormat("%.1f %%", 100 * x) : FormatNumber(x); };
  const double after = NumberOf(summary.value("eval", Json()), key);
  const double before = NumberOf(summary.value("eval_before", Json()), key);
  if (std::isnan(after)) return "";
  return Card(std::isnan(before) ? format(after) : StrCat(format(before), " → ", format(after)), label);
}

std::string Cards(const Json& s) {
  std::string html = Card(FormatNumber(NumberOf(s, "final_loss")), "training loss at the end");
  html += ChangeCard(s, "loss", "evaluation loss", false) + ChangeCard(s, "accuracy", "accuracy", true);
  html += Card(FormatWithCommas(static_cast<int64_t>(NumberOf(s, "steps"))),
               "updates, ended by " + TextOf(s, "stop_reason"));
  html += Card(FormatSeconds(NumberOf(s, "seconds")), "time");
  html += Card(FormatRate(NumberOf(s, "samples_per_second")), "samples/s");
  html += Card(FormatBytes(NumberOf(s, "measured_peak_bytes")),
               "peak memory, planned " + FormatBytes(NumberOf(s, "planned_peak_bytes")));
  return "<div class=\"cards\">\n" + html + "</div>\n";
}

std::string Heading(const RunRecord& run, const Json& s) {
  std::string html =
      StrCat("<h1>", EscapeHtml(std::filesystem::path(TextOf(s, "model")).filename().string()), "</h1>\n");
  StrAppend(&html, "<p class=\"soft\">",
            EscapeHtml(StrCat(TextOf(s, "data"), " · ", TextOf(s, "loss"), " · ", TextOf(s, "optimizer"), " · ",
                              TextOf(s, "precision"), " · ", TextOf(s, "cpu"), " · ", run.folder)),
            "</p>\n");
  for (const Json& warning : s.value("warnings", Json::array()))
    StrAppend(&html, "<p class=\"warn\">", EscapeHtml(FieldsToFlags(warning.get<std::string>())), "</p>\n");
  return html;
}

struct Part {
  const char* key;
  const char* name;
};
constexpr Part kParts[] = {{"compute", "compute"},
                           {"data", "waiting for data"},
                           {"eval", "evaluation"},
                           {"checkpoint", "checkpoints"},
                           {"compile", "compilation"}};

// Shows the shares of forward, backward and update in the computing time; "" if they were not measured.
std::string PhasesHtml(const Json& split) {
  const double compute = NumberOf(split, "compute");
  if (!(compute > 0) || std::isnan(NumberOf(split, "forward"))) return "";
  const auto percent = [&](const char* part) { return 100 * NumberOf(split, part) / compute; };
  return absl::StrFormat(
      "<p>Of computing, the forward pass takes %.0f %%, the backward pass %.0f %%, the update %.0f %%.</p>\n",
      percent("forward"), percent("backward"), percent("optimizer"));
}

std::string TimeSplitHtml(const Json& s) {
  const Json split = s.value("time_split", Json::object());
  std::string bar, key;
  double total = 0;
  for (const Part& part : kParts) total += std::max(0.0, NumberOf(split, part.key));
  if (!(total > 0)) return "";
  for (size_t i = 0; i < std::size(kParts); ++i) {
    const double seconds = NumberOf(split, kParts[i].key);
    absl::StrAppendFormat(&bar, "<div class=\"b%d\" style=\"width:%.2f%%\"></div>", i, 100 * seconds / total);
    absl::StrAppendFormat(&key, "<i class=\"b%d\"></i>%s %s (%.0f %%)", i, kParts[i].name, FormatSeconds(seconds),
                          100 * seconds / total);
  }
  std::string html = StrCat("<div class=\"split\">", bar, "</div>\n<p class=\"key\">", key, "</p>\n");
  const Json step = s.value("step_seconds", Json::object());
  if (!std::isnan(NumberOf(step, "median"))) {
    StrAppend(&html, "<p>A step takes ", FormatDuration(NumberOf(step, "median")), " (median; 95 % within ",
              FormatDuration(NumberOf(step, "p95")), ").</p>\n");
  }
  html += PhasesHtml(split);
  const std::string limit = TextOf(s.value("diagnosis", Json::object()), "text");
  return html + (limit.empty() ? "" : StrCat("<p><b>Limit:</b> ", EscapeHtml(FieldsToFlags(limit)), ".</p>\n"));
}

// Returns the largest singular values of an update, the first ones of the list: "0.31, 0.12, …".
std::string SingularValuesText(const Json& values) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(values.size(), kMost); ++i)
    StrAppend(&text, i == 0 ? "" : ", ", values[i].is_number() ? FormatNumber(values[i].get<double>()) : "?");
  return text + (values.size() > kMost ? ", …" : "");
}

// Lists the adapters, the one whose update is largest first.
std::string AdaptersHtml(const Json& s) {
  constexpr size_t kMost = 40;
  std::vector<Json> adapters = s.value("adapters", std::vector<Json>());
  if (adapters.empty()) return "";
  const auto largest = [](const Json& adapter) {
    const Json& first = adapter["singular_values"][0];
    return first.is_number() ? first.get<double>() : 0;
  };
  std::ranges::stable_sort(adapters, std::ranges::greater(), largest);
  std::vector<std::vector<std::string>> rows;
  for (const Json& adapter : adapters) {
    if (rows.size() == kMost) break;
    const auto number = [&](const char* key) { return FormatWithCommas(static_cast<int64_t>(NumberOf(adapter, key))); };
    rows.push_back({TextOf(adapter, "module"), number("rank"), StrCat(number("inputs"), " × ", number("outputs")),
                    SingularValuesText(adapter["singular_values"])});
  }
  const double trained = NumberOf(s, "trainable_parameters"), all = NumberOf(s, "parameters");
  std::string html = absl::StrFormat("<p>%s of %s values are trained (%.3g %%).</p>\n",
                                     FormatWithCommas(static_cast<int64_t>(trained)),
                                     FormatWithCommas(static_cast<int64_t>(all)), 100 * trained / all);
  html += HtmlTable({"module", "rank", "inputs × outputs", "largest singular values of the update"}, rows, true);
  return adapters.size() <= kMost ? html
                                  : StrCat(html, "<p>… and ", adapters.size() - kMost, " more, in summary.json.</p>\n");
}

struct CurveSeries {
  std::string name, key;  // `key`: of metrics.jsonl
};
struct Curve {
  std::string title;
  std::vector<CurveSeries> train, eval;
  bool log_y, from_zero;
  double scale = 1;
  const char* outliers = "";  // key of single points
};
constexpr double kMiB = 1 << 20;
const Curve kCurves[] = {
    {"loss", {{"training", "loss"}}, {{"evaluation", "loss"}}, true, false, 1, "loss_outlier"},
    {"accuracy", {{"training", "accuracy"}}, {{"evaluation", "accuracy"}}, false, false},
    {"learning rate", {{"training", "lr"}}, {}, false, true},
    {"gradient norm, before clipping", {{"training", "grad_norm"}}, {}, true, false, 1, "grad_norm_outlier"},
    {"samples per second", {{"training", "samples_per_second"}}, {}, false, true},
    {"share of the time that the step waits for data, %", {{"training", "data_wait"}}, {}, false, true, 100},
    {"memory of the process, MiB", {{"resident", "resident_bytes"}}, {}, false, true, 1 / kMiB},
    {"busy CPUs", {{"this process", "busy_cpus"}, {"the machine", "machine_busy_cpus"}}, {}, false, true},
    {"disks, MiB/s", {{"read", "disk_read_rate"}, {"written", "disk_write_rate"}}, {}, false, true, 1 / kMiB}};

// A metric with one line per GPU of the machine.
struct GpuCurve {
  const char *title, *key;  // `key` without the prefix "gpuN_"
  double scale = 1;
};
constexpr GpuCurve kGpuCurves[] = {{"GPUs: % of the time that a kernel runs", "utilization", 100},
                                   {"GPUs: memory in use, MiB", "memory_bytes", 1 / kMiB},
                                   {"GPUs: power, W", "watts"},
                                   {"GPUs: temperature, °C", "celsius"}};

void AddGpuCurves(const std::vector<RunRecord>& runs, std::vector<Curve>* curves) {
  int gpus = 0;
  const auto known = [&](const RunRecord& run) { return run.train.contains(StrCat("gpu", gpus, "_utilization")); };
  while (std::ranges::any_of(runs, known)) ++gpus;
  for (const GpuCurve& gpu : kGpuCurves) {
    Curve curve{.title = gpu.title, .train = {}, .eval = {}, .log_y = false, .from_zero = true, .scale = gpu.scale};
    for (int i = 0; i < gpus; ++i) curve.train.push_back({StrCat("GPU ", i), StrCat("gpu", i, "_", gpu.key)});
    curves->push_back(std::move(curve));
  }
}

Series Scaled(Series series, double scale) {
  for (auto& [step, value] : series) value *= scale;
  return series;
}

void AddLines(const RunRecord& run, const Curve& curve, const std::string& prefix, std::vector<PlotLine>* lines) {
  for (const auto& [name, key] : curve.train) {
    if (const Series* s = FindSeries(run.train, key))
      lines->push_back({.name = prefix + name, .points = Scaled(*s, curve.scale), .smooth = true});
  }
  for (const auto& [name, key] : curve.eval) {
    if (const Series* s = FindSeries(run.eval, key))
      lines->push_back({.name = prefix + name, .points = Scaled(*s, curve.scale), .markers = true});
  }
  if (const Series* s = FindSeries(run.train, curve.outliers))
    lines->push_back({.name = prefix + "outliers", .points = *s, .dots = true});
}

// Formats labels or predictions: "cat", "cat, dog", "0.53" or "corn: 0.53, rye: 0.2".
std::string ValuesText(const ReportContents& c, const std::vector<double>& values) {
  if (c.after->kind == QualityKind::kTexts)
    return c.alphabet->Decode(std::vector<int64_t>(values.begin(), values.end()));
  const bool numbers = c.after->kind == QualityKind::kNumbers, named = numbers && c.classes.size() == values.size();
  const auto text = [&](size_t i) {
    if (numbers) return StrCat(named && values.size() > 1 ? c.classes[i] + ": " : "", FormatNumber(values[i]));
    const auto id = static_cast<size_t>(values[i]);
    return id < c.classes.size() ? c.classes[id] : StrCat(id);
  };
  std::string all = values.empty() ? "none" : "";
  for (size_t i = 0; i < values.size(); ++i) StrAppend(&all, i == 0 ? "" : ", ", text(i));
  return all;
}

std::string OutcomeHtml(const ReportContents& c, const SampleResult& w) {
  const std::string sure = absl::StrFormat("%.0f %%", 100 * w.probability);
  if (c.after->kind == QualityKind::kPositions)
    return StrCat("<div>", sure, " correct, loss ", FormatNumber(w.loss), "</div>");
  const bool is_class = c.after->kind == QualityKind::kClass || c.after->kind == QualityKind::kTexts;
  return StrCat("<div><b>", EscapeHtml(ValuesText(c, w.predictions)), "</b>", is_class ? " (" + sure + ")" : "",
                "</div><div>label ", EscapeHtml(ValuesText(c, w.labels)), "</div>");
}

// Shows samples of a language model one below the other.
std::string WorstTextsHtml(const ReportContents& c) {
  std::string html =
      "<p class=\"soft\">Grey: what is not trained. The background of the other tokens shows their "
      "loss.</p>\n";
  for (size_t i = 0; i < c.worst.size(); ++i)
    absl::StrAppendFormat(
        &html, "<div>loss %s, %.0f %% of the tokens predicted <span class=\"soft\">%s</span></div>\n%s\n",
        FormatNumber(c.worst[i].loss), 100 * c.worst[i].probability, EscapeHtml(c.places[i]), c.pictures[i]);
  return html;
}

std::string WorstHtml(const ReportContents& c) {
  if (c.after->tokens) return WorstTextsHtml(c);
  std::string html;
  for (size_t i = 0; i < c.worst.size(); ++i) {
    StrAppend(&html, "<figure>", c.pictures[i], OutcomeHtml(c, c.worst[i]), "<div class=\"soft\">",
              EscapeHtml(c.places[i]), "</div></figure>\n");
  }
  return html.empty() ? "" : "<div class=\"worst\">\n" + html + "</div>\n";
}

std::string TokensHtml(const ReportContents& c) {
  if (!c.after->tokens) return "";
  const bool compares = c.before && c.before->tokens;
  return TokenLossesHtml(compares ? &*c.before->tokens : nullptr, *c.after->tokens, c.tokens ? &*c.tokens : nullptr);
}

std::string RateTestHtml(const std::optional<RateTestRecord>& test) {
  if (!test) return "";
  const PlotSpec plot{.title = "loss by learning rate",
                      .lines = {{.name = "of a batch", .points = test->loss, .dots = true},
                                {.name = "moving average", .points = test->smooth}},
                      .log_x = true,
                      .log_y = true};
  const std::string found = test->lr > 0 ? StrCat("Found ", FormatNumber(test->lr), ": ") : "";
  return StrCat("<div class=\"plots\">\n", LinePlot(plot), "</div>\n<p>", EscapeHtml(found + test->why), ".</p>\n");
}

}  // namespace

std::string CurvesHtml(const std::vector<RunRecord>& runs) {
  std::vector<Curve> curves(std::begin(kCurves), std::end(kCurves));
  AddGpuCurves(runs, &curves);
  for (const std::string& name : OtherMetrics(runs))
    curves.push_back({.title = name, .train = {}, .eval = {{"evaluation", name}}, .log_y = false, .from_zero = false});
  std::string html;
  for (const Curve& curve : curves) {
    PlotSpec plot{.title = curve.title, .lines = {}, .log_y = curve.log_y, .from_zero = curve.from_zero};
    for (const RunRecord& run : runs) AddLines(run, curve, runs.size() > 1 ? RunName(run) + " " : "", &plot.lines);
    html += LinePlot(plot);
  }
  return html.empty() ? "" : "<div class=\"plots\">\n" + html + "</div>\n";
}

std::string HtmlReport(const ReportContents& c) {
  const Json summary = ParseSummary(c.record);
  std::string body = Heading(c.record, summary) + Cards(summary);
  body += Section("Curves", CurvesHtml({c.record}));
  body += Section("Learning rate range test", RateTestHtml(c.record.rate_test));
  body += Section("Adapters", AdaptersHtml(summary));
  body += Section("Time", TimeSplitHtml(summary));
  if (c.memory) body += Section("Memory over the step", MemoryTimelineHtml(*c.memory));
  body += Section("Answers", AnswersHtml(c.answers));
  if (c.after) {
    body += Section("Predictions", QualityHtml(c.before ? &*c.before : nullptr, *c.after, c.classes) + TokensHtml(c));
    body += Section("Worst samples", WorstHtml(c));
  }
  body += Section("Configuration", c.flags.empty() ? "" : StrCat("<pre>", EscapeHtml(c.flags), "</pre>\n"));
  return HtmlPage("onnxtrain: " + RunName(c.record), body);
}

namespace {

// Returns null if nothing was trained.
const Program* LargestTrainingProgram(const Session& session) {
  const Program* largest = nullptr;
  for (const ProgramProfile& p : session.Profile()) {
    const bool trains = p.name.starts_with("micro") || p.name == "step";
    if (trains && (largest == nullptr || p.program->memory().arena > largest->memory().arena)) largest = p.program;
  }
  return largest;
}

// Returns the shape of a sample's labels after padding: a batch pads images of different sizes.
Shape LabelShape(const TrainingRun& run, int64_t sample) {
  const auto spec = std::ranges::find(run.eval.specs, run.session->loss().leading().feed, &FeedSpec::feed);
  if (spec == run.eval.specs.end()) return {};
  Shape shape = spec->sample.shape;
  if (spec->height_axis < 0) return shape;
  const PictureExtents extents = run.eval.dataset->Extents(sample);
  shape[spec->height_axis] = extents.padded_height;
  shape[spec->height_axis + 1] = extents.padded_width;
  return shape;
}

// Returns the names of the tokens of the run's text; nullopt if it has no tokenizer.
std::optional<ReportTokens> FindReportTokens(const TrainingRun& run) {
  const TextSetup& text = run.data.train.text;
  if (text.tokenizer == nullptr) return std::nullopt;
  const auto prompts = Prompts::Make(run.config, text);
  return ReportTokens{.text = TokenText(*text.tokenizer),
                      .end = prompts.ok() ? prompts->stop() : std::vector<int64_t>()};
}

}  // namespace

absl::Status WriteReport(const TrainingRun& run, const RunOutcome& outcome, const OutputFolder& folder) {
  RETURN_IF_ERROR(outcome.report_status);
  ASSIGN_OR_RETURN(RunRecord record, ReadRun(folder.path()));
  record.summary = outcome.json;
  const std::optional<Quality>& after = outcome.after;
  const Preprocess binding = DescribeBinding(run.data.train);
  const bool numbers = after && after->kind == QualityKind::kNumbers;
  const std::optional<ReportTokens> tokens = FindReportTokens(run);
  const bool predicts_tokens =
      tokens && after && after->kind == QualityKind::kPositions && after->classes >= std::ssize(tokens->text.names());
  ReportContents report{.record = std::move(record),
                        .flags = ToFlags(outcome.summary.config, kTaskTrain),
                        .classes = numbers           ? binding.label
                                   : predicts_tokens ? tokens->text.VisibleNames()
                                                     : binding.classes,
                        .before = outcome.before,
                        .after = after,
                        .alphabet = run.data.train.alphabet};
  if (predicts_tokens) report.tokens = tokens;
  report.answers = ReadSampleAnswers(folder.File(kSamplesFile));
  if (const Program* largest = LargestTrainingProgram(*run.session)) report.memory = TraceMemory(*largest);
  if (after) report.worst = FindWorst(*after, kWorstSamples);
  for (const SampleResult& worst : report.worst) {
    const bool shows_losses = after->tokens && report.tokens;
    report.pictures.push_back(shows_losses ? LossTextHtml(*run.eval.dataset, worst, tokens->text)
                                           : SampleHtml(run.eval, worst.sample, tokens ? &tokens->text : nullptr) +
                                                 ClassMapsHtml(worst, LabelShape(run, worst.sample)));
    report.places.push_back(run.eval.dataset->Describe(worst.sample));
  }
  return WriteTextFile(folder.File(kReportFile), HtmlReport(report));
}

std::string HtmlComparison(const std::vector<RunRecord>& runs) {
  const RunTable table = CompareRuns(runs);
  return HtmlPage("onnxtrain: runs", StrCat("<h1>", runs.size(), " runs</h1>\n",
                                            Section("Results", HtmlTable(table.header, table.rows, true)),
                                            Section("Curves", CurvesHtml(runs))));
}

}  // namespace onnxtrain::cli
