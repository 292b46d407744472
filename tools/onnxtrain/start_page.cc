#include "tools/onnxtrain/start_page.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "optim/rules/rule.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/environment.h"

namespace onnxtrain::cli {
namespace {

std::string Rows(const std::string& label, const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) text += PageRow(i == 0 ? label : "", lines[i]);
  return text;
}

std::string ModelRows(const TrainSetup& s) {
  int64_t trained = 0, frozen = 0, statistics = 0;
  for (const WeightDecision& w : s.session->weights()) {
    (w.trained ? trained : w.why == "running statistics" ? statistics : frozen) += w.type.elements();
  }
  std::vector<std::string> lines = {DescribeModel(*s.model)};
  lines.push_back(StrCat(
      WithCommas(trained), " parameters trained", frozen > 0 ? StrCat(", ", WithCommas(frozen), " not") : "",
      statistics > 0 ? StrCat(", ", WithCommas(statistics), " running statistics") : "", " (--train, --freeze)"));
  // What the globs matched, by reason.
  std::map<std::string, std::vector<std::string>> matched;
  for (const WeightDecision& w : s.session->weights()) {
    if (w.why.find("--") != std::string::npos) matched[w.why].push_back(w.name);
  }
  for (auto& [why, names] : matched) {
    constexpr size_t kMost = 8;
    const size_t all = names.size();
    names.resize(std::min(all, kMost));
    lines.push_back(StrCat(why, ": ", absl::StrJoin(names, ", "), all > kMost ? StrCat(", … (", all, " in all)") : ""));
  }
  lines.insert(lines.end(), s.surgery.begin(), s.surgery.end());
  for (const std::string& note : s.session->notes()) lines.push_back("note: " + note);
  return Rows("model", lines);
}

std::string DataRows(const TrainSetup& s) {
  std::vector<std::string> lines = {StrCat(s.data_text, ": ", WithCommas(s.train_data.dataset->size()), " samples",
                                           s.options.shuffle ? "" : ", in order",
                                           s.options.drop_last ? ", short batches dropped" : "")};
  lines.insert(lines.end(), s.data.bound.notes.begin(), s.data.bound.notes.end());
  if (!s.data.normalize.empty()) lines.push_back(StrCat("pixels normalized: ", s.data.normalize, " (--normalize)"));
  std::string text = Rows("data", lines);
  if (s.has_eval()) {
    text += PageRow("eval data", StrCat(s.eval_text, ": ", WithCommas(s.eval_data.dataset->size()), " samples"));
  } else if (!s.synthetic) {
    text += PageRow("eval data", "none (--eval-data, --eval-split)");
  }
  return text;
}

std::string OptimizerText(const TrainSetup& s) {
  const OptimizerSpec& o = s.optimizer;
  std::string text = o.rule;
  const std::string_view takes = FindRule(o)->takes;
  const auto reads = [&](std::string_view number) { return takes.find(number) != std::string_view::npos; };
  if (reads("momentum")) StrAppend(&text, ", momentum ", o.momentum, o.nesterov ? " (Nesterov)" : "");
  if (o.dampening != 0) StrAppend(&text, ", dampening ", o.dampening);
  if (reads("betas")) StrAppend(&text, ", betas ", o.beta1, ",", o.beta2);
  if (reads("eps")) StrAppend(&text, ", eps ", o.eps);
  StrAppend(&text, ", weight decay ", o.weight_decay);
  if (o.max_grad_norm > 0) StrAppend(&text, ", global norm ≤ ", o.max_grad_norm);
  if (o.agc > 0) StrAppend(&text, ", gradients ≤ ", o.agc, " of their weights (AGC)");
  if (o.clip_value > 0) StrAppend(&text, ", elements within ±", o.clip_value);
  if (o.max_grad_norm == 0 && o.agc == 0 && o.clip_value == 0) StrAppend(&text, ", no clipping");
  if (o.ema_decay > 0) StrAppend(&text, "; evaluated: their average, decay ", o.ema_decay);
  return text;
}

std::string StepRows(const TrainSetup& s) {
  const std::string arithmetic =
      StrCat(s.batch.global, " = ", s.batch.micro, " per micro-batch × ", s.batch.accumulation, " accumulated");
  std::string steps =
      StrCat(WithCommas(s.steps.total), " updates",
             s.synthetic ? ""
                         : StrCat(": ", s.steps.epochs, s.steps.epochs == 1 ? " epoch of " : " epochs of ",
                                  WithCommas(s.steps.per_epoch)));
  if (s.steps.max_steps > 0 && !s.synthetic) StrAppend(&steps, ", at most ", WithCommas(s.steps.max_steps));
  if (s.options.max_seconds > 0) StrAppend(&steps, ", at most ", ShownSeconds(s.options.max_seconds));
  std::string rate = StrCat(Short(s.optimizer.lr), s.rate_text);
  if (s.schedule.name != "constant") StrAppend(&rate, "; ", s.schedule.name, " to ", Short(s.schedule.min_lr));
  if (s.schedule.warmup > 0)
    StrAppend(&rate, "; warm-up ", Short(s.schedule.warmup), s.schedule.warmup < 1 ? " of the run" : " updates");
  std::vector<std::string> rates = {rate};
  rates.insert(rates.end(), s.rate_lines.begin(), s.rate_lines.end());
  return PageRow("loss", StrCat(s.session->loss().explanation, " (--loss, --logits)")) + PageRow("batch", arithmetic) +
         PageRow("steps", steps) + PageRow("optimizer", OptimizerText(s)) + Rows("lr", rates);
}

// The flags that were not given, wrapped.
std::string DefaultRows(const TrainSetup& s) {
  std::vector<std::string> lines(1);
  for (const FlagDefault& d : Resolved(s)) {
    if (Given(d.name)) continue;
    const bool flag_switch = d.value == "true" || d.value == "false";
    const std::string text = flag_switch ? (d.value == "true" ? Shown(d.name) : "--no-" + Shown(d.name).substr(2))
                                         : StrCat(Shown(d.name), " ", d.value);
    constexpr size_t kWidth = 100;
    if (lines.back().size() + text.size() + 2 > kWidth) lines.emplace_back();
    StrAppend(&lines.back(), lines.back().empty() ? "" : "  ", text);
  }
  return Rows("defaults", lines);
}

std::string Metrics(const EvalMetrics& m) {
  std::string text = StrCat("loss ", Short(m.loss));
  if (m.accuracy >= 0) text += absl::StrFormat(", accuracy %.2f%%", 100 * m.accuracy);
  for (const auto& [name, value] : m.metrics) StrAppend(&text, ", ", name, " ", Short(value));
  return text;
}

}  // namespace

std::string PageRow(const std::string& label, const std::string& text) {
  return absl::StrFormat("%-11s%s\n", label, text);
}

std::string StartPage(const TrainSetup& s) {
  std::string text = ModelRows(s) + DataRows(s) + StepRows(s);
  text += PageRow("run", "backend " + DescribeBackend(*s.backend));
  if (!s.precision.why.empty()) text += PageRow("precision", s.precision.why + " (--mixed-precision)");
  text += PageRow("out", s.folder->path());
  return text + DefaultRows(s);
}

std::string EndPage(const RunSummary& summary, const TrainSetup& s, const std::vector<std::string>& files) {
  const TrainResult& r = summary.result;
  std::string text = PageRow(
      "trained", StrCat(WithCommas(r.steps), " updates, ", Short(r.epochs), " epochs, ", WithCommas(r.samples),
                        " samples in ", ShownSeconds(r.seconds), " (", WithCommas(static_cast<int64_t>(Throughput(r))),
                        " samples/s); ended by ", r.stop_reason));
  text += PageRow(
      "loss",
      StrCat(Short(r.final_loss), " over the last updates",
             r.skipped_steps > 0 ? StrCat("; ", r.skipped_steps, " updates skipped: gradient not finite") : ""));
  if (r.eval_before.samples > 0) {
    text += PageRow("eval",
                    StrCat("before: ", Metrics(r.eval_before), r.eval.samples > 0 ? "; after: " + Metrics(r.eval) : "",
                           " (", WithCommas(r.eval_before.samples), " samples)"));
  }
  text += PageRow("time", StrCat("compile ", ShownSeconds(r.compile_seconds), ", waiting for data ",
                                 ShownSeconds(r.data_seconds), ", compute ", ShownSeconds(r.compute_seconds),
                                 r.eval_seconds > 0 ? StrCat(", eval ", ShownSeconds(r.eval_seconds)) : ""));
  text += PageRow("memory", StrCat("planned ", ShownBytes(static_cast<double>(summary.planned_peak_bytes)),
                                   "; the process took ", ShownBytes(static_cast<double>(summary.measured_peak_bytes)), " above its start"));
  return text + PageRow("written", StrCat(s.folder->path(), ": ", absl::StrJoin(files, ", ")));
}

}  // namespace onnxtrain::cli
