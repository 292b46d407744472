#include "optim/record/recorder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "frontend/base/files.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/version.h"
#include "optim/parallel/data_parallel.h"
#include "optim/plan/folders.h"
#include "optim/plan/threads.h"
#include "optim/record/run_settings.h"
#include "optim/record/telemetry/tensorboard.h"

namespace onnxtrain {
namespace {

RunConditions ConditionsOf(const TrainingRun& run, const ResourceReading& used) {
  RunConditions conditions{.threads = run.compute_threads(),
                           .busy_cpus = used.busy_cpus,
                           .queued_share = used.queued_share,
                           .full_precision = run.precision.name == "no"};
  for (const ProgramProfile& program : run.session->Profile())
    conditions.recompute_share = std::max(conditions.recompute_share, program.extra_share);
  return conditions;
}

int64_t CountParameters(const Session& session) {
  int64_t total = 0;
  for (const WeightDecision& w : session.weights()) total += w.type.elements();
  return total;
}

RunSummary Summarize(const TrainingRun& run, const TrainResult& result, int64_t resident_at_start,
                     const ResourceReading& used) {
  const int threads = run.compute_threads();
  RunSummary summary{.version = kVersion,
                     .result = result,
                     .exported_metric = ExportsAverage(run.config) ? "ema" : "last",
                     .backend = run.backend->name(),
                     .device = run.backend->device(),
                     .cpu = StrCat(CpuName(), ", ", threads, threads == 1 ? " thread" : " threads"),
                     .tokens_per_sample = run.train.text_unit.tokens_per_sample,
                     .global_batch = run.batch.global,
                     .micro_batch = run.session->micro_batch(),  // smaller than planned where memory ran out
                     .world = run.options.peers != nullptr ? run.options.peers->size() : 1,
                     .planned_peak_bytes = run.session->planned_peak_bytes(),
                     .memory = run.session->memory(),
                     .measured_peak_bytes = PeakResidentBytes() - resident_at_start,
                     .busy_cpus = used.busy_cpus,
                     .queued_share = used.queued_share,
                     .diagnosis = Diagnose(result, ConditionsOf(run, used)),
                     .trainable_parameters = run.trained_parameters(),
                     .all_parameters = CountParameters(*run.session),
                     .loss = run.session->loss().name,
                     .optimizer = run.optimizer.spec.rule,
                     .learning_rate = run.optimizer.spec.lr,
                     .data = run.data.train_text,
                     .data_samples = run.data.has_samples() ? run.train.dataset->size() : 0,
                     .model = run.data.model->path(),
                     .model_sha256 = run.data.model->sha256(),
                     .seed = run.options.seed};
  if (run.precision.name != "no") summary.precision = run.precision.name;
  summary.accumulation = (run.batch.global + summary.micro_batch - 1) / summary.micro_batch;
  return summary;
}

// Returns why a completed loop counts as failed; "" if it does not. `where`: origin of the first gradient that was not
// finite, or "".
std::string FindFailure(const TrainConfig& config, const TrainResult& r, const std::string& where) {
  if (r.steps > 0 && r.skipped_steps == r.steps)
    return StrCat("every update was skipped: the gradient was never finite", where.empty() ? "" : ": ", where);
  if (r.stop_reason == "not_finite" && config.on_nonfinite == "abort")
    return StrCat("the gradient of update ", r.steps, " was not finite (`on_nonfinite` abort)");
  if (r.stop_reason == "not_finite" && !where.empty())
    return StrCat("the gradient was not finite in update after update: ", where);
  if (r.stop_reason == "not_finite")
    return "the gradient was not finite in update after update (a lower `lr` may help)";
  if (!std::isfinite(r.final_loss)) return "the last loss is not finite (a lower `lr` may help)";
  return "";
}

bool IsEnd(const std::string& stop_reason) {
  return stop_reason == "epochs" || stop_reason == "max_steps" || stop_reason == "early_stopping";
}

constexpr int64_t kReportedSamples = 1000;

}  // namespace

absl::Status Recorder::BeginCheckpoints(int64_t model_bytes) {
  if (run_.data.synthetic) return absl::OkStatus();
  if (recorded_.continues_folder) saved_step_ = recorded_.resumed->result.steps;
  ASSIGN_OR_RETURN(checkpoints_, CheckpointFolder::Open(folder_.File(kCheckpointsFolder)));
  const bool keeps_best = run_.config.export_weights == "best";
  const int host_threads = run_.backend->ReadsHostMemory() ? run_.compute_threads() : 1;
  const CheckpointOptions options{.keep_last = run_.config.keep_last,
                                  .keep_best = std::max<int64_t>(run_.config.keep_best, keeps_best ? 1 : 0),
                                  .compressed = run_.config.checkpoint_compression == "zstd",
                                  .copy_threads = host_threads,
                                  .method = run_.save.method,
                                  .on_host = run_.backend->ReadsHostMemory(),
                                  .group = recorded_.group};
  writer_ = std::make_unique<CheckpointWriter>(checkpoints_.get(), options, saved_step_);
  writer_->SetTrace(recorded_.trace.get());
  // The newest checkpoint stays until the model is written; a resumed run can remove older ones to make room.
  RETURN_IF_ERROR(writer_->CheckRoom(*run_.session, recorded_.continues_folder ? 0 : model_bytes));
  model_.ReplaceCheckpoints(writer_.get());
  return writer_->Reserve(*run_.session);
}

bool Recorder::HasCheckpoints() const {
  return checkpoints_ != nullptr && !ListCheckpoints(checkpoints_->handle()).empty();
}

// Ignores errors, which the evaluation reports as well: only report.html needs the result.
std::optional<Quality> Recorder::EvaluateForReport(const std::atomic<bool>* stop) {
  if (!run_.has_eval() || run_.data.synthetic || run_.session->holds_partial_weights()) return std::nullopt;
  auto quality = EvaluateQuality(*run_.session, run_.eval, kReportedSamples, run_.config.ignore_index, stop);
  return quality.ok() ? *std::move(quality) : std::nullopt;
}

absl::Status Recorder::Begin() {
  ASSIGN_OR_RETURN(const int64_t model_bytes, model_.CheckCanBeWritten());
  RETURN_IF_ERROR(OpenSamples());
  if (!recorded_.continues_folder) RETURN_IF_ERROR(folder_.RemoveOldRun());
  RETURN_IF_ERROR(WriteSettings(run_, recorded_.resolved, recorded_.settings_from, folder_));
  const std::string metrics = folder_.File("metrics.jsonl");
  const bool classes = run_.session->loss().classes;
  if (recorded_.continues_folder) {
    ASSIGN_OR_RETURN(metrics_, MetricsFile::Continue(metrics, classes, *recorded_.resumed));
  } else {
    ASSIGN_OR_RETURN(metrics_, MetricsFile::Create(metrics, classes));
  }
  const int64_t resumed = recorded_.continues_folder ? recorded_.resumed->result.steps : 0;
  ASSIGN_OR_RETURN(events_, EventFile::Create(folder_.File(kEventsFolder), resumed));
  events_->WriteGraph(GraphDef(*run_.data.model));
  files_ = {"summary.json", "metrics.jsonl", "config.flags", "config.yaml", kEventsFolder};
  if (run_.data.has_samples()) files_.insert(files_.begin() + 2, "preprocess.json");
  if (std::filesystem::exists(folder_.File(kTokenizerFolder))) files_.emplace_back(kTokenizerFolder);
  if (run_.rate_test) {
    RETURN_IF_ERROR(WriteTextFile(folder_.File(kRateTestFile), ToJson(*run_.rate_test)));
    files_.emplace_back(kRateTestFile);
  }
  if (!run_.reference.train.empty()) {
    RETURN_IF_ERROR(WriteReferenceScores(run_.reference, folder_.File(kReferenceFile)));
    files_.emplace_back(kReferenceFile);
  }
  if (samples_ != nullptr) {
    RETURN_IF_ERROR(samples_->OpenFile(folder_.File(kSamplesFile), recorded_.continues_folder ? resumed : -1));
    files_.emplace_back(kSamplesFile);
  }
  return BeginCheckpoints(model_bytes);
}

absl::Status Recorder::OpenSamples() {
  if (run_.config.sample_prompts.empty()) return absl::OkStatus();
  auto opened = SampleWriter::Open(run_);
  if (!opened.ok()) return Annotate(opened.status(), StrCat("`sample_prompts` ", run_.config.sample_prompts, ": "));
  samples_ = *std::move(opened);
  return absl::OkStatus();
}

// Warns instead of failing, since a failed answer must not end the training.
void Recorder::WriteSamples(int64_t step) {
  if (samples_ == nullptr) return;
  const auto line = samples_->Write(step);
  if (line.ok()) display_.ShowInfo("sample     " + *line);
  if (!line.ok() && !absl::IsCancelled(line.status()))
    warnings_.Add(StrCat("`sample_prompts`: ", ToStd(line.status().message())));
}

RunState Recorder::MakeState(const LoopPosition& position, SaveReason reason) const {
  return {.version = kVersion,
          .cpu = CpuName(),
          .position = position,
          .session = run_.session->counters(),
          .finished = reason == SaveReason::kEnd && IsEnd(position.result.stop_reason),
          .config = recorded_.resolved,
          .model_sha256 = run_.data.model->sha256(),
          .data_fingerprint = recorded_.data_fingerprint,
          .external_data = recorded_.external_data,
          .samples_per_second = Throughput(position.result)};
}

// Warns instead of failing, since a full disk must not end the training.
void Recorder::WarnOfFailedSave(const absl::Status& status) {
  if (!status.ok()) warnings_.Add(StrCat("a checkpoint was not saved: ", ToStd(status.message())));
}

void Recorder::Save(const LoopPosition& position, SaveReason reason) {
  const int64_t step = position.result.steps;
  best_ = position.best;
  if (reason == SaveReason::kEnd) at_end_ = position.result;
  if (writer_ == nullptr) return;
  if (reason == SaveReason::kBest && writer_->last_step() == step) {
    WarnOfFailedSave(writer_->MarkBest(step));
    return;
  }
  const std::string state = ToJson(MakeState(position, reason));
  const bool last = reason == SaveReason::kEnd;
  WarnOfFailedSave(writer_->Save(*run_.session, step, state, position.best.step == step, last));
  if (!last) return;
  const absl::Status written = writer_->Finish();
  WarnOfFailedSave(written);
  if (written.ok()) saved_step_ = step;
}

void Recorder::OnEvent(const TrainEvent& event) {
  metrics_->Write(event);
  events_->Write(event.step, ScalarsOf(event, run_.session->loss().classes));
  warnings_.CheckEvent(event);
  display_.ShowProgress(event);
  if (event.kind != TrainEvent::Kind::kEval) return;
  if (event.step == 0) warnings_.CheckInitialEvaluation(event.eval);
  WriteSamples(event.step);
}

void Recorder::OnNotFinite(const std::string& where) {
  const char* data = run_.data.synthetic ? " (the samples are synthetic, which may be the reason: `data`)" : "";
  not_finite_ = StrCat(where, data);
  warnings_.Add(StrCat("update 1 is skipped, its gradient is not finite: ", not_finite_));
}

void Recorder::OpenHistograms() {
  const Interval& every = run_.config.histogram_every;
  const double seconds = every.unit == Interval::Unit::kSeconds ? every.value : 0;
  if (every.value != 0)
    histograms_ = std::make_unique<HistogramRecorder>(*run_.session, *events_, run_.train,
                                                      IntervalSteps(every, run_.steps.per_epoch), seconds);
}

absl::Status Recorder::OnBatch(int64_t update, const Batch& batch) {
  if (recorded_.order != nullptr) RETURN_IF_ERROR(recorded_.order->Write(update, batch, *run_.train.dataset));
  return histograms_ != nullptr ? histograms_->OnBatch(update, batch) : absl::OkStatus();
}

absl::StatusOr<TrainResult> Recorder::Loop() {
  TrainOptions options = run_.options;
  options.resume = recorded_.resumed;
  options.trace = recorded_.trace.get();
  OpenHistograms();
  if (recorded_.group != nullptr) options.peers->SaveParts([this] { writer_->Wait(); });
  if (options.peers != nullptr) options.peers->SetScratchFolder(folder_.path());
  ResourceMonitor resources;
  auto result = Train(*run_.session, run_.train, run_.eval, options, *this);
  display_.EndProgress();
  used_ = resources.Take();
  return result;
}

// Follows a folder that was moved or removed during the run, and rewrites missing files.
void Recorder::FindFolderAgain() {
  const auto found = folder_.FindAgain();
  if (!found.ok()) return;  // later writes fail and are reported
  if (!found->empty()) warnings_.Add(*found);
  std::error_code ignored;
  const bool complete = std::filesystem::exists(folder_.File("config.flags"), ignored) &&
                        (!run_.data.has_samples() || std::filesystem::exists(folder_.File("preprocess.json"), ignored));
  const absl::Status written =
      complete ? absl::OkStatus() : WriteSettings(run_, recorded_.resolved, recorded_.settings_from, folder_);
  if (!written.ok()) warnings_.Add(std::string(ToStd(written.message())));
}

// Predicts with the exported weights. Runs last, so that model and summary are written even if it fails.
absl::Status Recorder::EvaluateModel() {
  if (!model_.has_exported()) return absl::OkStatus();
  RETURN_IF_ERROR(model_.UseExported());
  after_ = EvaluateForReport(nullptr);
  return run_.session->UseAverage(false);
}

// Warns instead of failing if the profile cannot be written.
void Recorder::WriteProfile() {
  if (recorded_.trace == nullptr) return;
  const absl::Status written = WriteTextFile(run_.config.profile, recorded_.trace->ToJson());
  if (!written.ok()) warnings_.Add(StrCat("`profile`: ", ToStd(written.message())));
  display_.ShowProfile(*recorded_.trace);
}

RunOutcome Recorder::Finish(const TrainResult& result, const std::string& failure) {
  if (failure.empty()) warnings_.CheckResult(result);
  if (writer_ != nullptr) WarnOfFailedSave(writer_->Finish());
  WriteProfile();
  FindFolderAgain();
  RunSummary summary = Summarize(run_, result, recorded_.resident_at_start, used_);
  const bool stopped = result.stop_reason == "signal";
  absl::Status written;
  if (failure.empty() && !stopped) {
    written = model_.Write(best_, &summary, &files_);
  } else if (at_end_.has_value() || HasCheckpoints()) {
    written = model_.WriteUnfinished(at_end_.has_value(), &files_);
  }
  summary.measured_peak_bytes = PeakResidentBytes() - recorded_.resident_at_start;  // which writing may have raised
  if (writer_ != nullptr && writer_->removed_early() > 0)
    warnings_.Add(
        StrCat("the disk was full: ", writer_->removed_early(), " checkpoints were removed before their time"));
  if (HasCheckpoints()) files_.emplace_back(kCheckpointsFolder);
  const absl::Status histograms = histograms_ != nullptr ? histograms_->status() : absl::OkStatus();
  for (const absl::Status& status : {metrics_->status(), events_->status(), histograms}) {
    if (!status.ok()) warnings_.Add(std::string(ToStd(status.message())));
  }
  summary.resumable = saved_step_ == result.steps && result.steps > 0;
  summary.resumed_from = recorded_.resumed ? recorded_.resumed->result.steps : 0;
  summary.config = recorded_.resolved;
  summary.choices = run_.choices;
  summary.warnings = warnings_.texts();
  RunOutcome outcome{.json = ToJson(summary), .before = before_};
  const absl::Status saved = WriteTextFile(folder_.File("summary.json"), outcome.json);
  outcome.summary_written = saved.ok();
  if (saved.ok()) outcome.report_status = EvaluateModel();
  outcome.after = std::move(after_);
  outcome.summary = std::move(summary);
  outcome.files = files_;
  outcome.status = !written.ok()     ? written
                   : !saved.ok()     ? saved
                   : failure.empty() ? absl::OkStatus()
                                     : Invalid(failure);
  return outcome;
}

RunOutcome Recorder::Finish(const TrainResult& result) {
  return Finish(result, FindFailure(run_.config, result, not_finite_));
}

RunOutcome Recorder::TrainAndWrite() {
  if (!recorded_.resumed) before_ = EvaluateForReport(run_.options.stop);
  const auto result = Loop();
  if (result.ok()) return Finish(*result);
  TrainResult so_far = recorded_.resumed ? recorded_.resumed->result : TrainResult();
  if (at_end_) so_far = *at_end_;
  const bool cancelled = absl::IsCancelled(result.status());  // before the first step
  so_far.stop_reason = cancelled ? "signal" : "error";
  if (cancelled) return Finish(so_far, "");
  RunOutcome outcome = Finish(so_far, std::string(ToStd(result.status().message())));
  outcome.bad_input = absl::IsInvalidArgument(result.status());  // as before the first step
  return outcome;
}

}  // namespace onnxtrain
