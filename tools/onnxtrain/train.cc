// onnxtrain [train]: from flags to a trained model in a folder.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/onnx/export.h"
#include "optim/telemetry/console.h"
#include "optim/telemetry/format.h"
#include "optim/telemetry/metrics_file.h"
#include "optim/telemetry/summary.h"
#include "tools/onnxtrain/command.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/start_page.h"
#include "tools/onnxtrain/surgery.h"
#include "tools/onnxtrain/text_file.h"
#include "tools/onnxtrain/version.h"

namespace onnxtrain::cli {
namespace {

Preprocess PreprocessOf(const TrainSetup& s) {
  const BoundData& data = s.data.bound;
  Preprocess p{.normalize = s.data.normalize,
               .classes = data.classes,
               .loss = s.session->loss().name,
               .output = s.session->loss().output()};
  const auto& columns = data.dataset->columns();
  for (const FeedSpec& feed : data.feeds) {
    // Columns that were made up for this run do not exist in other files.
    for (int c : feed.columns) {
      if (!s.synthetic && c < s.data.own_columns) p.inputs[feed.feed].push_back(columns[c].name);
    }
    if (p.inputs.contains(feed.feed)) p.layout[feed.feed] = feed.sample.shape;
  }
  for (int c : data.label.columns) p.label.push_back(columns[c].name);
  return p;
}

bool ExportsAverage() { return FLAGS_ema_decay > 0 && FLAGS_export_weights != "last"; }

RunSummary Summarize(const TrainSetup& s, const TrainResult& result) {
  RunSummary summary{.version = kVersion, .result = result, .exported_metric = ExportsAverage() ? "ema" : "last"};
  summary.backend = s.backend->name();
  summary.device = s.backend->device();
  summary.cpu = StrCat(CpuName(), ", ", s.threads, s.threads == 1 ? " thread" : " threads");
  if (s.precision.name != "no") summary.precision = s.precision.name;
  summary.global_batch = s.batch.global;
  summary.micro_batch = s.session->micro_batch();  // smaller than planned where memory ran out
  summary.accumulation = (s.batch.global + summary.micro_batch - 1) / summary.micro_batch;
  summary.planned_peak_bytes = s.session->planned_peak_bytes();
  summary.measured_peak_bytes = PeakResidentBytes() - s.resident_at_start;
  summary.trainable_parameters = s.trained_parameters();
  summary.loss = s.session->loss().name;
  summary.optimizer = s.optimizer.rule;
  summary.learning_rate = s.optimizer.lr;
  summary.data = s.data_text;
  summary.data_samples = s.train_data.dataset->size();
  summary.model = s.model->path();
  summary.model_sha256 = s.model->sha256();
  summary.seed = s.options.seed;
  return summary;
}

double Chance(const LossChoice& loss) {
  return loss.num_classes() > 1 ? 1.0 / static_cast<double>(loss.num_classes()) : 0.5;
}

void WarnAtChance(const TrainSetup& s, const EvalMetrics& before, std::vector<std::string>* warnings) {
  const LossChoice& loss = s.session->loss();
  if (!s.origin.trained || WantsSurgery() || before.accuracy < 0 || before.accuracy > 1.5 * Chance(loss)) return;
  warnings->push_back(absl::StrFormat(
      "the model looks trained (%s) but starts at %.1f%% accuracy, which is chance: the preprocessing is "
      "probably wrong%s",
      s.origin.why, 100 * before.accuracy,
      s.data.normalize.empty() ? "" : StrCat(" (--normalize is ", s.data.normalize, ")")));
  Warn(warnings->back());
}

void WarnAtSmallScale(const StepReport& report, std::vector<std::string>* warnings) {
  const std::string text = "the loss scale fell below 1: gradients overflow fp16 at any scale (bf16 has float32's range)";
  const bool warned = std::find(warnings->begin(), warnings->end(), text) != warnings->end();
  if (report.loss_scale == 0 || report.loss_scale >= 1 || warned) return;
  warnings->push_back(text);
  Warn(text);
}

void WarnIfWorse(const TrainSetup& s, const TrainResult& r, std::vector<std::string>* warnings) {
  if (!s.origin.trained || r.eval.samples == 0 || r.steps == 0) return;
  const bool worse = r.eval.accuracy >= 0 ? r.eval.accuracy < r.eval_before.accuracy : r.eval.loss > r.eval_before.loss;
  if (!worse) return;
  warnings->push_back(StrCat("the model looks trained and ends worse than it began (",
                             r.eval.accuracy >= 0 ? "accuracy " : "loss ",
                             Short(r.eval.accuracy >= 0 ? r.eval_before.accuracy : r.eval_before.loss), " → ",
                             Short(r.eval.accuracy >= 0 ? r.eval.accuracy : r.eval.loss),
                             "): the preprocessing or --lr ", Short(s.optimizer.lr), " is probably wrong"));
  Warn(warnings->back());
}

// Why a loop that came to its end has still failed; "" if it has not.
std::string Failure(const TrainResult& r) {
  if (r.steps > 0 && r.skipped_steps == r.steps) return "every update was skipped: the gradient was never finite";
  if (r.stop_reason == "not_finite" && FLAGS_on_nonfinite == "abort")
    return StrCat("the gradient of update ", r.steps, " was not finite (--on-nonfinite abort)");
  if (r.stop_reason == "not_finite")
    return "the gradient was not finite in update after update (a lower --lr may help)";
  if (!std::isfinite(r.final_loss)) return "the last loss is not finite (a lower --lr may help)";
  return "";
}

class Run {
 public:
  explicit Run(TrainSetup& s) : s_(s) {}
  absl::StatusOr<int> Go(const std::atomic<bool>* stop);

 private:
  absl::Status Begin();
  absl::StatusOr<TrainResult> Loop(const std::atomic<bool>* stop);
  absl::Status WriteModel(RunSummary* summary);
  absl::StatusOr<int> Finish(const TrainResult& result, const std::string& failure);
  int CheckRequired(const std::string& json) const;

  TrainSetup& s_;
  std::unique_ptr<MetricsFile> metrics_;
  std::vector<std::string> warnings_, files_;
};

absl::Status Run::Begin() {
  RETURN_IF_ERROR(s_.folder->RemoveOldRun());
  RETURN_IF_ERROR(WriteTextFile(s_.folder->File("config.flags"), FlagFileText("train", Resolved(s_))));
  RETURN_IF_ERROR(WriteTextFile(s_.folder->File("preprocess.json"), ToJson(PreprocessOf(s_))));
  ASSIGN_OR_RETURN(metrics_, MetricsFile::Create(s_.folder->File("metrics.jsonl"), s_.session->loss().classes));
  files_ = {"summary.json", "metrics.jsonl", "preprocess.json", "config.flags"};
  return absl::OkStatus();
}

absl::StatusOr<TrainResult> Run::Loop(const std::atomic<bool>* stop) {
  s_.options.stop = stop;
  Console console(stderr, {.total_steps = s_.options.max_seconds > 0 ? 0 : s_.steps.total,
                           .has_accuracy = s_.session->loss().classes});
  return Train(*s_.session, s_.train_data, s_.eval_data, s_.options, [&](const TrainEvent& event) {
    metrics_->Write(event);
    if (!FLAGS_quiet) console.Show(event);
    WarnAtSmallScale(event.report, &warnings_);
    if (event.kind != TrainEvent::Kind::kEval || event.step > 0) return;
    console.Finish();
    WarnAtChance(s_, event.eval, &warnings_);
  });
}

absl::Status Run::WriteModel(RunSummary* summary) {
  const std::string name = s_.synthetic ? "model.synthetic.onnx" : "model.onnx";
  RETURN_IF_ERROR(s_.session->UseAverage(ExportsAverage()));
  ASSIGN_OR_RETURN(const auto weights, s_.session->Weights());
  ASSIGN_OR_RETURN(const auto edits, Export(*s_.model, weights, s_.folder->File(name)));
  for (const std::string& edit : edits) Say("export: " + edit);
  summary->exported = true;
  summary->exported_file = name;
  files_.insert(files_.begin(), name);
  return absl::OkStatus();
}

int Run::CheckRequired(const std::string& json) const {
  const auto unmet = Unmet(s_.requirements, [&](const std::string& name) { return MetricOf(json, name); });
  for (const std::string& line : unmet) std::fprintf(stderr, "onnxtrain: required: %s\n", line.c_str());
  return unmet.empty() ? kDone : kRequirement;
}

absl::StatusOr<int> Run::Finish(const TrainResult& result, const std::string& failure) {
  if (failure.empty()) WarnIfWorse(s_, result, &warnings_);
  RunSummary summary = Summarize(s_, result);
  const bool stopped = result.stop_reason == "signal";
  absl::Status written;
  if (failure.empty() && !stopped) written = WriteModel(&summary);
  if (!metrics_->status().ok()) {
    warnings_.emplace_back(ToStd(metrics_->status().message()));
    Warn(warnings_.back());
  }
  summary.warnings = warnings_;
  const std::string json = ToJson(summary);
  const absl::Status saved = WriteTextFile(s_.folder->File("summary.json"), json);
  for (const absl::Status& status : {written, saved}) {
    if (!status.ok()) return Failed(status);
  }
  if (!failure.empty()) return Failed(Invalid(failure));
  RETURN_IF_ERROR(Print(FLAGS_json ? json : EndPage(summary, s_, files_)));
  return stopped ? kStopped : CheckRequired(json);
}

absl::StatusOr<int> Run::Go(const std::atomic<bool>* stop) {
  RETURN_IF_ERROR(Begin());
  const auto result = Loop(stop);
  if (!result.ok()) {
    TrainResult nothing;
    nothing.stop_reason = "error";
    ASSIGN_OR_RETURN(const int code, Finish(nothing, std::string(ToStd(result.status().message()))));
    // A broken sample met on the way is bad input, like one met before.
    return absl::IsInvalidArgument(result.status()) ? kBadInput : code;
  }
  return Finish(*result, Failure(*result));
}

}  // namespace

absl::StatusOr<int> RunTrain() {
  const std::atomic<bool>* stop = CatchSignals();
  ASSIGN_OR_RETURN(const std::unique_ptr<TrainSetup> setup, SetUpTraining());
  if (setup->synthetic) {
    Warn("NO --data: training on made-up samples, to see that the model trains; the result is good for nothing else");
  }
  if (!FLAGS_quiet) std::fputs(StartPage(*setup).c_str(), stderr);
  return Run(*setup).Go(stop);
}

}  // namespace onnxtrain::cli
