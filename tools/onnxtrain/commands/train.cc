// onnxtrain [train]: trains a model into a folder.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/onnx/export.h"
#include "optim/auto/model_setup.h"
#include "optim/auto/surgery.h"
#include "optim/auto/training_run.h"
#include "optim/telemetry/console.h"
#include "optim/telemetry/format.h"
#include "optim/telemetry/metrics_file.h"
#include "optim/telemetry/summary.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/flags/require.h"
#include "tools/onnxtrain/report/output_folder.h"
#include "tools/onnxtrain/report/start_page.h"
#include "tools/onnxtrain/version.h"

namespace onnxtrain::cli {
namespace {

Preprocess MakePreprocess(const TrainingRun& run) {
  Preprocess p = DescribeBinding(run.data.train);
  p.loss = run.session->loss().name;
  p.output = run.session->loss().output();
  return p;
}

bool ExportsAverage(const TrainConfig& c) { return c.ema_decay > 0 && c.export_weights != "last"; }

RunSummary Summarize(const TrainingRun& run, const TrainResult& result, int64_t resident_at_start) {
  const int threads = ComputeThreads(run.config);
  RunSummary summary{.version = kVersion,
                     .result = result,
                     .exported_metric = ExportsAverage(run.config) ? "ema" : "last",
                     .backend = run.backend->name(),
                     .device = run.backend->device(),
                     .cpu = StrCat(CpuName(), ", ", threads, threads == 1 ? " thread" : " threads"),
                     .global_batch = run.batch.global,
                     .micro_batch = run.session->micro_batch(),  // smaller than planned where memory ran out
                     .planned_peak_bytes = run.session->planned_peak_bytes(),
                     .measured_peak_bytes = PeakResidentBytes() - resident_at_start,
                     .trainable_parameters = run.trained_parameters(),
                     .loss = run.session->loss().name,
                     .optimizer = run.optimizer.spec.rule,
                     .learning_rate = run.optimizer.spec.lr,
                     .data = run.data.train_text,
                     .data_samples = run.train.dataset->size(),
                     .model = run.data.model->path(),
                     .model_sha256 = run.data.model->sha256(),
                     .seed = run.options.seed};
  if (run.precision.name != "no") summary.precision = run.precision.name;
  summary.accumulation = (run.batch.global + summary.micro_batch - 1) / summary.micro_batch;
  return summary;
}

// Warnings for stderr and summary.json, each once.
class Warnings {
 public:
  void Add(const std::string& text) {
    if (std::find(texts_.begin(), texts_.end(), text) != texts_.end()) return;
    texts_.push_back(text);
    Warn(text);
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

double Chance(const LossChoice& loss) {
  return loss.num_classes() > 1 ? 1.0 / static_cast<double>(loss.num_classes()) : 0.5;
}

void WarnAtChance(const TrainingRun& run, const EvalMetrics& before, Warnings* warnings) {
  const ModelOrigin& origin = run.optimizer.origin;
  if (!origin.trained || HasSurgery(run.config) || before.accuracy < 0 ||
      before.accuracy > 1.5 * Chance(run.session->loss()))
    return;
  const std::string& normalize = run.data.train.normalize;
  warnings->Add(absl::StrFormat(
      "the model looks trained (%s) but starts at %.1f%% accuracy, which is chance: the preprocessing is "
      "probably wrong%s",
      origin.why, 100 * before.accuracy, normalize.empty() ? "" : StrCat(" (--normalize is ", normalize, ")")));
}

void WarnAtSmallScale(const StepReport& report, Warnings* warnings) {
  if (report.loss_scale == 0 || report.loss_scale >= 1) return;
  warnings->Add("the loss scale fell below 1: gradients overflow fp16 at any scale (bf16 has float32's range)");
}

void WarnIfWorse(const TrainingRun& run, const TrainResult& r, Warnings* warnings) {
  if (!run.optimizer.origin.trained || r.eval.samples == 0 || r.steps == 0) return;
  const bool accuracy = r.eval.accuracy >= 0;
  const double before = accuracy ? r.eval_before.accuracy : r.eval_before.loss;
  const double after = accuracy ? r.eval.accuracy : r.eval.loss;
  if (accuracy ? after >= before : after <= before) return;
  warnings->Add(StrCat("the model looks trained and ends worse than it began (", accuracy ? "accuracy " : "loss ",
                       FormatNumber(before), " → ", FormatNumber(after), "): the preprocessing or --lr ",
                       FormatNumber(run.optimizer.spec.lr), " is probably wrong"));
}

// Why a loop that came to its end has still failed; "" if it has not.
std::string FindFailure(const TrainConfig& config, const TrainResult& r) {
  if (r.steps > 0 && r.skipped_steps == r.steps) return "every update was skipped: the gradient was never finite";
  if (r.stop_reason == "not_finite" && config.on_nonfinite == "abort")
    return StrCat("the gradient of update ", r.steps, " was not finite (--on-nonfinite abort)");
  if (r.stop_reason == "not_finite")
    return "the gradient was not finite in update after update (a lower --lr may help)";
  if (!std::isfinite(r.final_loss)) return "the last loss is not finite (a lower --lr may help)";
  return "";
}

absl::StatusOr<std::vector<Requirement>> ReadRequirements(const TrainingRun& run) {
  const LossChoice& loss = run.session->loss();
  const std::vector<std::string> metrics = EvalNames(loss, run.config.metrics);
  std::vector<Requirement> requirements;
  for (const std::string& text : run.config.require) {
    ASSIGN_OR_RETURN(const Requirement r, ParseRequirement(text));
    const bool listed = std::find(metrics.begin(), metrics.end(), r.metric) != metrics.end();
    const bool of_eval = listed || r.metric == "loss" || r.metric == "accuracy" || r.metric.starts_with("eval");
    if (of_eval && !run.has_eval())
      return Invalid("`require` ", r.metric, ": there is no evaluation data (`eval_data`, `eval_split`)");
    if (!listed && r.metric.ends_with("accuracy") && !loss.classes)
      return Invalid("`require` ", r.metric, ": loss ", loss.name, " has no accuracy");
    requirements.push_back(r);
  }
  return requirements;
}

// Trains, and writes the files of the run.
class Recorder {
 public:
  Recorder(TrainingRun& run, OutputFolder& folder, TrainConfig resolved, std::vector<Requirement> requirements,
           int64_t resident_at_start)
      : run_(run),
        folder_(folder),
        resolved_(std::move(resolved)),
        requirements_(std::move(requirements)),
        resident_at_start_(resident_at_start) {}

  absl::StatusOr<int> TrainAndWrite(const std::atomic<bool>* stop);

 private:
  std::string ModelFile() const { return run_.data.synthetic ? "model.synthetic.onnx" : "model.onnx"; }
  absl::Status CheckModelCanBeWritten();
  absl::Status Begin();
  absl::StatusOr<TrainResult> Loop(const std::atomic<bool>* stop);
  absl::Status WriteModel(RunSummary* summary);
  absl::StatusOr<int> Finish(const TrainResult& result, const std::string& failure);
  int CheckRequirements(const std::string& json) const;

  TrainingRun& run_;
  OutputFolder& folder_;
  const TrainConfig resolved_;
  const std::vector<Requirement> requirements_;
  const int64_t resident_at_start_;
  std::unique_ptr<MetricsFile> metrics_;
  Warnings warnings_;
  std::vector<std::string> files_;
};

// Hours of training must not end in a model that cannot be written.
absl::Status Recorder::CheckModelCanBeWritten() {
  ASSIGN_OR_RETURN(const auto weights, run_.session->Weights());
  return Annotate(CheckExport(*run_.data.model, weights, folder_.File(ModelFile())),
                  "the model could not be written: ");
}

absl::Status Recorder::Begin() {
  RETURN_IF_ERROR(CheckModelCanBeWritten());
  RETURN_IF_ERROR(folder_.RemoveOldRun());
  const std::string flags = StrCat("# onnxtrain train --flagfile THIS\n", ToFlags(resolved_, kTaskTrain));
  RETURN_IF_ERROR(WriteTextFile(folder_.File("config.flags"), flags));
  RETURN_IF_ERROR(WriteTextFile(folder_.File("preprocess.json"), ToJson(MakePreprocess(run_))));
  ASSIGN_OR_RETURN(metrics_, MetricsFile::Create(folder_.File("metrics.jsonl"), run_.session->loss().classes));
  files_ = {"summary.json", "metrics.jsonl", "preprocess.json", "config.flags"};
  return absl::OkStatus();
}

absl::StatusOr<TrainResult> Recorder::Loop(const std::atomic<bool>* stop) {
  TrainOptions options = run_.options;
  options.stop = stop;
  Console console(stderr, {.total_steps = options.max_seconds > 0 ? 0 : run_.steps.total,
                           .has_accuracy = run_.session->loss().classes});
  return Train(*run_.session, run_.train, run_.eval, options, [&](const TrainEvent& event) {
    metrics_->Write(event);
    if (!run_.config.quiet) console.Show(event);
    WarnAtSmallScale(event.report, &warnings_);
    if (event.kind != TrainEvent::Kind::kEval || event.step > 0) return;
    console.Finish();
    WarnAtChance(run_, event.eval, &warnings_);
  });
}

absl::Status Recorder::WriteModel(RunSummary* summary) {
  const std::string name = ModelFile();
  RETURN_IF_ERROR(run_.session->UseAverage(ExportsAverage(run_.config)));
  ASSIGN_OR_RETURN(const auto weights, run_.session->Weights());
  ASSIGN_OR_RETURN(const auto edits, Export(*run_.data.model, weights, folder_.File(name)));
  for (const std::string& edit : edits) LogInfo(run_.config, "export: " + edit);
  summary->exported = true;
  summary->exported_file = name;
  files_.insert(files_.begin(), name);
  return absl::OkStatus();
}

int Recorder::CheckRequirements(const std::string& json) const {
  return ReportUnmet(
      FindUnmetRequirements(requirements_, [&](const std::string& name) { return FindSummaryMetric(json, name); }));
}

absl::StatusOr<int> Recorder::Finish(const TrainResult& result, const std::string& failure) {
  if (failure.empty()) WarnIfWorse(run_, result, &warnings_);
  RunSummary summary = Summarize(run_, result, resident_at_start_);
  const bool stopped = result.stop_reason == "signal";
  absl::Status written;
  if (failure.empty() && !stopped) written = WriteModel(&summary);
  if (!metrics_->status().ok()) warnings_.Add(std::string(ToStd(metrics_->status().message())));
  summary.config = resolved_;
  summary.warnings = warnings_.texts();
  const std::string json = ToJson(summary);
  const absl::Status saved = WriteTextFile(folder_.File("summary.json"), json);
  for (const absl::Status& status : {written, saved}) {
    if (!status.ok()) return ReportFailure(status);
  }
  if (!failure.empty()) return ReportFailure(Invalid(failure));
  RETURN_IF_ERROR(Print(run_.config.json ? json : EndPage(summary, folder_.path(), files_)));
  return stopped ? kStopped : CheckRequirements(json);
}

absl::StatusOr<int> Recorder::TrainAndWrite(const std::atomic<bool>* stop) {
  RETURN_IF_ERROR(Begin());
  const auto result = Loop(stop);
  if (!result.ok()) {
    TrainResult nothing;
    const bool cancelled = absl::IsCancelled(result.status());  // before the first step
    nothing.stop_reason = cancelled ? "signal" : "error";
    if (cancelled) return Finish(nothing, "");
    ASSIGN_OR_RETURN(const int code, Finish(nothing, std::string(ToStd(result.status().message()))));
    // A broken sample found while training is bad input, as before the first step.
    return absl::IsInvalidArgument(result.status()) ? kBadInput : code;
  }
  return Finish(*result, FindFailure(run_.config, *result));
}

absl::StatusOr<std::unique_ptr<OutputFolder>> OpenFolder(const TrainConfig& config) {
  std::vector<std::string> inputs = {config.model, PreprocessPath(config.model)};
  for (const std::string& path : {config.data, config.eval_data}) {
    if (!path.empty()) inputs.push_back(path);
  }
  const std::string path = config.out.empty() ? DefaultOutputFolder(config.model) : config.out;
  return OutputFolder::Open(path, config.overwrite, inputs);
}

TrainConfig ResolveForFile(const TrainingRun& run, const OutputFolder& folder) {
  TrainConfig resolved = ResolveConfig(run);
  resolved.out = folder.path();
  resolved.threads = ComputeThreads(run.config);
  resolved.specified.insert({"out", "threads"});
  return resolved;
}

void Announce(const TrainingRun& run, const TrainConfig& resolved) {
  if (!run.precision.warning.empty()) Warn(run.precision.warning);
  if (run.data.synthetic)
    Warn("NO --data: training on synthetic samples, to show that the model trains; the result is of no other use");
  LogInfo(run.config, StartPage(run, resolved));
  for (const std::string& warning : run.warnings) Warn(warning);
}

}  // namespace

absl::StatusOr<int> RunTrain(const TrainConfig& config) {
  const std::atomic<bool>* stop = CatchSignals();
  std::optional<PreparingScope> preparing(std::in_place);
  const int64_t resident_at_start = PeakResidentBytes();
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFolder> folder, OpenFolder(config));
  ASSIGN_OR_RETURN(TrainingRun run, PrepareTraining(config, std::move(model), LoadBackend));
  ASSIGN_OR_RETURN(std::vector<Requirement> requirements, ReadRequirements(run));
  TrainConfig resolved = ResolveForFile(run, *folder);
  preparing.reset();
  Announce(run, resolved);
  return Recorder(run, *folder, std::move(resolved), std::move(requirements), resident_at_start).TrainAndWrite(stop);
}

}  // namespace onnxtrain::cli
