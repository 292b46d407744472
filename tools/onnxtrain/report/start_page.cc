#include "tools/onnxtrain/report/start_page.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/scratch_file.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "optim/plan/session_setup.h"
#include "optim/step/rules/rule.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags/flags.h"

namespace onnxtrain::cli {
namespace {

constexpr size_t kAll = std::numeric_limits<size_t>::max();

// The first `limit` lines; the last of them counts the lines that are left out.
std::string Rows(const std::string& label, const std::vector<std::string>& lines, size_t limit = kAll) {
  const size_t shown = lines.size() <= limit ? lines.size() : limit - 1;
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += PageRow(i == 0 ? label : "", lines[i]);
  if (shown < lines.size())
    text += PageRow(shown == 0 ? label : "", StrCat("… ", lines.size() - shown, " more lines (`verbose`)"));
  return text;
}

// The number of lines of a section that a short page shows.
size_t Limit(const TrainingRun& run, size_t lines) { return run.config.verbose ? kAll : lines; }

// "`freeze` conv*: a, b, … (12 in all)" for each reason that `train` and `freeze` give.
std::vector<std::string> GlobLines(const std::vector<WeightDecision>& weights) {
  std::map<std::string, std::vector<std::string>> matched;
  for (const WeightDecision& w : weights) {
    if (w.reason > WeightReason::kDefault && w.reason != WeightReason::kBase) matched[w.why].push_back(DisplayName(w));
  }
  std::vector<std::string> lines;
  for (auto& [why, names] : matched) {
    constexpr size_t kMost = 8;
    const size_t all = names.size();
    names.resize(std::min(all, kMost));
    lines.push_back(StrCat(why, ": ", absl::StrJoin(names, ", "), all > kMost ? StrCat(", … (", all, " in all)") : ""));
  }
  return lines;
}

std::string ModelRows(const TrainingRun& run) {
  int64_t trained = 0, frozen = 0, statistics = 0;
  for (const WeightDecision& w : run.session->weights()) {
    (w.trained ? trained : w.reason == WeightReason::kStatistics ? statistics : frozen) += w.type.elements();
  }
  std::vector<std::string> lines = {StrCat(
      DescribeModel(*run.data.model), ": ", FormatWithCommas(trained), " parameters trained",
      frozen > 0 ? StrCat(", ", FormatWithCommas(frozen), " not") : "",
      statistics > 0 ? StrCat(", ", FormatWithCommas(statistics), " running statistics") : "", " (`train`, `freeze`)")};
  for (std::string& line : GlobLines(run.session->weights())) lines.push_back(std::move(line));
  lines.insert(lines.end(), run.data.surgery.begin(), run.data.surgery.end());
  for (const std::string& note : run.session->notes()) lines.push_back("note: " + note);
  return Rows("model", lines, Limit(run, 6));
}

std::string DataRows(const TrainingRun& run) {
  const TrainingData& data = run.data;
  std::vector<std::string> lines;
  if (!data.preprocess_path.empty())
    lines.push_back(StrCat("reading ", data.preprocess_path, ", which was written with this model"));
  lines.push_back(StrCat(data.train_text, ": ", FormatWithCommas(run.train.dataset->size()), " samples",
                         run.options.shuffle ? "" : ", in order",
                         run.options.drop_last ? ", short batches dropped" : ""));
  lines.insert(lines.end(), data.train.bound.notes.begin(), data.train.bound.notes.end());
  if (!data.train.normalize.empty())
    lines.push_back(StrCat("pixels normalized: ", data.train.normalize, " (`normalize`)"));
  std::string text = Rows("data", lines, Limit(run, 7));
  if (run.has_eval()) {
    text += PageRow("eval data", StrCat(data.eval_text, ": ", FormatWithCommas(run.eval.dataset->size()), " samples"));
  } else if (!data.synthetic) {
    text += PageRow("eval data", "none (`eval_data`, `eval_split`)");
  }
  return text;
}

std::string OptimizerText(const OptimizerSpec& o, bool verbose) {
  std::string text = o.rule;
  const std::string_view takes = FindRule(o)->takes;
  const auto reads = [&](std::string_view number) { return takes.find(number) != std::string_view::npos; };
  if (reads("momentum")) StrAppend(&text, ", momentum ", o.momentum, o.nesterov ? " (Nesterov)" : "");
  if (o.dampening != 0) StrAppend(&text, ", dampening ", o.dampening);
  if (reads("betas") && verbose) StrAppend(&text, ", betas ", o.beta1, ",", o.beta2);
  if (reads("eps") && verbose) StrAppend(&text, ", eps ", o.eps);
  StrAppend(&text, ", weight decay ", o.weight_decay);
  if (o.max_grad_norm > 0) StrAppend(&text, ", global norm ≤ ", o.max_grad_norm);
  if (o.agc > 0) StrAppend(&text, ", gradients ≤ ", o.agc, " of their weights (AGC)");
  if (o.clip_value > 0) StrAppend(&text, ", elements within ±", o.clip_value);
  if (o.max_grad_norm == 0 && o.agc == 0 && o.clip_value == 0) StrAppend(&text, ", no clipping");
  if (o.ema_decay > 0) StrAppend(&text, "; evaluates the moving average of the weights, decay ", o.ema_decay);
  return text + " (`optimizer`, `weight_decay`, `max_grad_norm`)";
}

std::string StepsText(const TrainingRun& run) {
  const StepPlan& steps = run.steps;
  std::string text = StrCat(FormatWithCommas(steps.total), " updates");
  if (!run.data.synthetic) {
    StrAppend(&text, ": ", steps.epochs, steps.epochs == 1 ? " epoch of " : " epochs of ",
              FormatWithCommas(steps.per_epoch), run.config.epochs == 0 ? " (`epochs`)" : "");
    if (steps.max_steps > 0) StrAppend(&text, ", at most ", FormatWithCommas(steps.max_steps));
    if (run.config.epochs > 0 && steps.max_steps > 0)
      text += ": both limits hold (in the Trainer, max_steps replaces the epochs)";
  }
  if (run.options.max_seconds > 0) StrAppend(&text, ", at most ", FormatSeconds(run.options.max_seconds));
  return text;
}

std::string RateRows(const OptimizerChoice& o, size_t limit) {
  std::string rate = StrCat(FormatNumber(o.spec.lr), o.rate_text);
  if (o.schedule.name != "constant") StrAppend(&rate, "; ", o.schedule.name, " to ", FormatNumber(o.schedule.min_lr));
  if (o.schedule.warmup > 0)
    StrAppend(&rate, "; warm-up ", FormatNumber(o.schedule.warmup), o.schedule.warmup < 1 ? " of the run" : " updates");
  std::vector<std::string> rates = {rate + " (`lr`)"};
  rates.insert(rates.end(), o.rate_lines.begin(), o.rate_lines.end());
  return Rows("lr", rates, limit);
}

// Many programs take the batch of one rank instead.
std::string DescribeRanks() {
  const auto rank = ReadRank();
  return !rank.ok() || rank->alone() ? "" : StrCat(" for all ", rank->size, " ranks together");
}

std::string BatchText(const TrainingRun& run) {
  if (run.tokens.on()) return DescribeTokens(run.tokens, run.train.specs);
  const BatchPlan& b = run.batch;
  const bool all = !run.data.train.bound.sample_index_input.empty();
  const std::string fixed = all ? "all samples" : DescribeFixedBatch(run.session->fixed_batch());
  const std::string parts =
      b.accumulation == 1 ? "" : StrCat(" = ", b.micro, " per micro-batch × ", b.accumulation, " accumulated");
  return StrCat(b.global, parts, fixed.empty() ? "" : ": ", fixed, DescribeRanks(), " (`batch_size`",
                parts.empty() ? ")" : ", `micro_batch_size`)");
}

std::string StepRows(const TrainingRun& run) {
  return PageRow("loss", StrCat(run.session->loss().explanation, " (`loss`, `logits`)")) +
         PageRow("batch", BatchText(run)) + PageRow("steps", StepsText(run)) +
         PageRow("optimizer", OptimizerText(run.optimizer.spec, run.config.verbose)) +
         RateRows(run.optimizer, Limit(run, 5));
}

// Names the frozen weights and the activations that are in files.
std::string DescribeFiles(const SessionMemory& memory) {
  std::string text;
  if (memory.mapped > 0)
    StrAppend(&text, " and ", FormatBytes(static_cast<double>(memory.mapped)), " mapped from the model's file");
  if (memory.offloaded > 0)
    StrAppend(&text, " and ", FormatBytes(static_cast<double>(memory.offloaded)), " in a file in ", ScratchFolder(),
              " (`activation_offloading`)");
  return text;
}

std::string MemoryRows(const TrainingRun& run) {
  std::vector<std::string> lines = run.memory_lines;
  if (run.options.peers == nullptr && run.session->planned_peak_bytes() > 0)
    lines.insert(lines.begin(),
                 StrCat(FormatBytes(static_cast<double>(run.session->planned_peak_bytes())),
                        " planned for the whole run (`memory_budget`)", DescribeFiles(run.session->memory())));
  const std::string save = DescribeSave(run.save);
  if (run.config.verbose && !save.empty()) lines.push_back("a checkpoint " + save);
  return Rows("memory", lines, Limit(run, 2));
}

// The flags that were not given, wrapped.
std::string DefaultRows(const TrainConfig& config, const TrainConfig& resolved) {
  std::vector<std::string> lines(1);
  for (const std::string& flag : DefaultFlags(config, resolved)) {
    constexpr size_t kWidth = 100;
    if (lines.back().size() + flag.size() + 2 > kWidth) lines.emplace_back();
    StrAppend(&lines.back(), lines.back().empty() ? "" : "  ", flag);
  }
  return Rows("defaults", lines);
}

// A table: field, value, reason.
std::string ChoiceRows(const std::vector<AutoChoice>& choices) {
  std::vector<std::string> lines;
  for (const AutoChoice& choice : choices)
    lines.push_back(absl::StrFormat("%-26s%-7s%s", FormatFlag(choice.field), choice.value, choice.why));
  return Rows("auto", lines);
}

std::string Metrics(const EvalMetrics& m) {
  std::string text = StrCat("loss ", FormatNumber(m.loss));
  if (m.accuracy >= 0) text += absl::StrFormat(", accuracy %.2f%%", 100 * m.accuracy);
  for (const auto& [name, value] : m.metrics) StrAppend(&text, ", ", name, " ", FormatNumber(value));
  return text;
}

}  // namespace

std::vector<std::string> BudgetChoices(const TrainingRun& run) {
  std::vector<std::string> lines;
  for (const std::string& line : run.memory_lines) lines.push_back(FieldsToFlags(line));
  return lines;
}

std::string PageRow(const std::string& label, const std::string& text) {
  return absl::StrFormat("%-10s %s\n", label, text);
}

std::string StartPage(const TrainingRun& run, const TrainConfig& resolved) {
  std::string text = ModelRows(run) + DataRows(run) + StepRows(run);
  text += PageRow("run", "backend " + DescribeBackend(*run.backend));
  if (!run.precision.why.empty() && run.choices.empty())
    text += PageRow("precision", run.precision.why + " (`mixed_precision`)");
  text += MemoryRows(run);
  text += ChoiceRows(run.choices);
  text += PageRow("out", StrCat(resolved.out, "; its config.flags has every setting",
                                run.config.verbose ? "" : " (`verbose` lists the defaults)"));
  if (run.config.verbose) text += DefaultRows(run.config, resolved);
  text.pop_back();
  return text;
}

namespace {

// " (forward 33 %, …)", where it is known.
std::string PhasesText(const PhaseShares& p) {
  if (p.forward + p.backward <= 0) return "";
  return absl::StrFormat(" (forward %.0f %%, backward %.0f %%, update %.0f %%)", 100 * p.forward, 100 * p.backward,
                         100 * p.update);
}

std::string CheckpointsText(const TrainResult& r) {
  std::string text = StrCat(", checkpoints ", FormatSeconds(r.checkpoint_seconds));
  if (r.checkpoint_pause_seconds > 0)
    StrAppend(&text, " (an update waited ", FormatDuration(r.checkpoint_pause_seconds), " at most)");
  return text;
}

}  // namespace

std::string DescribeMemory(const SessionMemory& planned, int64_t measured) {
  const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
  return FieldsToFlags(StrCat("planned ", bytes(planned.total()), DescribeFiles(planned), "; the process took ",
                              bytes(measured), " above its start"));
}

std::string EndPage(const RunSummary& summary, const std::string& folder, const std::vector<std::string>& files) {
  const TrainResult& r = summary.result;
  std::string text = PageRow("trained", StrCat(FormatWithCommas(r.steps), " updates, ", FormatNumber(r.epochs),
                                               r.epochs == 1 ? " epoch, " : " epochs, ", FormatWithCommas(r.samples),
                                               " samples in ", FormatSeconds(r.seconds), " (",
                                               FormatRate(Throughput(r)), " samples/s); ended by ", r.stop_reason));
  text += PageRow(
      "loss",
      StrCat(FormatNumber(r.final_loss), " over the last updates",
             r.skipped_steps > 0 ? StrCat("; ", r.skipped_steps, " updates skipped: gradient not finite") : ""));
  if (r.eval_before.samples > 0) {
    text += PageRow("eval",
                    StrCat("before: ", Metrics(r.eval_before), r.eval.samples > 0 ? "; after: " + Metrics(r.eval) : "",
                           " (", FormatWithCommas(r.eval_before.samples), " samples)"));
  }
  text += PageRow(
      "time", StrCat("compile ", FormatSeconds(r.compile_seconds), ", waiting for data ", FormatSeconds(r.data_seconds),
                     ", compute ", FormatSeconds(r.compute_seconds), PhasesText(r.phases),
                     r.eval_seconds > 0 ? StrCat(", eval ", FormatSeconds(r.eval_seconds)) : "",
                     r.checkpoint_seconds > 0 ? CheckpointsText(r) : ""));
  if (r.step_median_seconds > 0) {
    text += PageRow("step",
                    absl::StrFormat("median %s, 95%% within %s; %.1f CPUs busy", FormatDuration(r.step_median_seconds),
                                    FormatDuration(r.step_p95_seconds), summary.busy_cpus));
  }
  text += PageRow("memory", DescribeMemory(summary.memory, summary.measured_peak_bytes));
  if (!summary.diagnosis.text.empty()) text += PageRow("limit", FieldsToFlags(summary.diagnosis.text));
  if (summary.resumable && (r.stop_reason == "signal" || r.stop_reason == "max_time"))
    text += PageRow("continue", StrCat("onnxtrain --resume ", folder));
  return text + PageRow("written", StrCat(folder, ": ", absl::StrJoin(files, ", ")));
}

std::string DescribeGraphs(const ExportedGraphs& exported) {
  std::string text;
  for (const ExportedGraph& graph : exported.graphs) {
    const char* what = graph.updates ? ": loss, new weights and new moments" : ": loss and gradients";
    const std::string batch =
        graph.batch == 0 ? "of any size" : StrCat("of ", FormatWithCommas(graph.batch), " samples");
    const std::string why = graph.why.empty() ? "" : StrCat(" (", graph.why, ")");
    text += PageRow("written", StrCat(graph.path, what, " of batches ", batch, why));
  }
  return text;
}

}  // namespace onnxtrain::cli
