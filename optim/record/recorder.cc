#include "optim/record/recorder.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "frontend/base/files.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/base/version.h"
#include "frontend/data/text/tokenizer.h"
#include "frontend/onnx/write/export.h"
#include "optim/parallel/data_parallel.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"
#include "optim/plan/surgery.h"
#include "optim/plan/threads.h"
#include "optim/record/adapter_summary.h"
#include "optim/record/model_folder.h"
#include "optim/record/telemetry/tensorboard.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

Preprocess MakePreprocess(const TrainingRun& run) {
  Preprocess p = DescribeBinding(run.data.train);
  p.loss = run.session->loss().name;
  p.output = run.session->loss().output();
  p.reference_model = NameReferenceModel(run.config, run.session->loss());
  return p;
}

bool ExportsAverage(const TrainConfig& c) { return KeepsAverage(c) && c.export_weights != "last"; }

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
      origin.why, 100 * before.accuracy, normalize.empty() ? "" : StrCat(" (`normalize` is ", normalize, ")")));
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
  // A small loss of accuracy is noise as long as the loss falls.
  if (r.eval.loss <= r.eval_before.loss || (accuracy && after >= before)) return;
  warnings->Add(StrCat("the model looks trained and ends worse than it began (", accuracy ? "accuracy " : "loss ",
                       FormatNumber(before), " → ", FormatNumber(after), "): the preprocessing or `lr` ",
                       FormatNumber(run.optimizer.spec.lr), " is probably wrong"));
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

absl::StatusOr<std::map<std::string, HostTensor>> ReadCheckpointWeights(const std::string& path, bool average) {
  ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint, OpenCheckpoint(path));
  return ReadWeights(checkpoint, average);
}

// Returns views of the session's weights, or of their averages, valid until its next update.
absl::StatusOr<std::map<std::string, HostTensor>> ViewWeights(Session& session, bool average) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> state, session.State());
  std::map<std::string, HostTensor> weights, averages;
  const std::string prefix = MomentName(kAverage, "");
  for (const auto& [name, of_model, region] : state) {
    if (!of_model || region.view.buffer == nullptr) continue;
    const HostTensor view(region.type, nullptr, HostMemory(region));
    const bool is_average = name.starts_with(prefix);
    (is_average ? averages : weights)[is_average ? name.substr(prefix.size()) : name] = view;
  }
  if (average) averages.merge(weights);
  return average ? averages : weights;
}

constexpr int64_t kReportedSamples = 1000;
constexpr char kAdapterForms[] = "merged,peft";
constexpr char kUnfinishedFile[] = "model.unfinished.onnx";

}  // namespace

void Warnings::Add(const std::string& text) {
  if (std::find(texts_.begin(), texts_.end(), text) != texts_.end()) return;
  texts_.push_back(text);
  display_.ShowWarning(text);
}

// Returns the size in bytes of the lines of the first `done` updates.
int64_t FindEnd(const std::string& path, int64_t done) {
  std::ifstream file(path);
  int64_t end = 0;
  for (std::string line; std::getline(file, line) && !file.eof(); end += std::ssize(line) + 1) {
    if (std::strtoll(line.c_str(), nullptr, 10) > done) break;
  }
  return end;
}

absl::StatusOr<std::unique_ptr<OrderFile>> OrderFile::Open(const std::string& path, int64_t done) {
  std::error_code missing;
  if (done > 0) std::filesystem::resize_file(path, FindEnd(path, done), missing);
  std::ofstream file(path, done > 0 ? std::ios::app : std::ios::trunc);
  if (!file) return Invalid("`dump_order` ", path, ": ", std::strerror(errno));
  return std::unique_ptr<OrderFile>(new OrderFile(path, std::move(file)));
}

absl::Status OrderFile::Write(int64_t update, const Batch& batch, const Dataset& data) {
  for (const int64_t sample : batch.samples)
    file_ << update << '\t' << batch.epoch << '\t' << data.Describe(sample) << '\n';
  if (!file_.flush()) return absl::DataLossError(StrCat("`dump_order` ", path_, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

// Fails before the training if the model could not be written after it.
absl::Status Recorder::CheckModelCanBeWritten() {
  ASSIGN_OR_RETURN(auto trained, SessionWeights());
  ASSIGN_OR_RETURN(const auto weights, run_.ToExport(std::move(trained)));
  model_bytes_ = ModelBytes(weights);
  RETURN_IF_ERROR(CheckAdapterFiles(ListAdapterFiles(weights), MakeAdapterPaths()));
  if (!MergesAdapters()) return absl::OkStatus();
  return Annotate(CheckExport(*run_.data.model, weights, folder_.File(ModelFile())),
                  "the model could not be written: ");
}

absl::Status Recorder::BeginCheckpoints() {
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
  RETURN_IF_ERROR(writer_->CheckRoom(*run_.session, recorded_.continues_folder ? 0 : model_bytes_));
  return writer_->Reserve(*run_.session);
}

absl::Status Recorder::WriteSettings() const {
  const std::string top = recorded_.settings_from.empty() ? "" : StrCat("# ", recorded_.settings_from, "\n");
  RETURN_IF_ERROR(WriteTextFile(folder_.File("config.flags"), top + ToFlags(recorded_.resolved, kTaskTrain)));
  RETURN_IF_ERROR(WriteTextFile(folder_.File("config.yaml"), top + ToYaml(recorded_.resolved, kTaskTrain)));
  if (run_.data.has_samples())
    RETURN_IF_ERROR(WriteTextFile(folder_.File("preprocess.json"), ToJson(MakePreprocess(run_))));
  return WriteTokenizer();
}

// Returns the tokenizer of the run's text, which preprocess.json refers to, or else one in the folder of the model,
// which has probably produced the token ids of the data. Null if there is none or it cannot be read.
std::shared_ptr<const Tokenizer> Recorder::FindTokenizer() const {
  const OpenedData& data = run_.data.train;
  const auto takes_ids = [](const FeedSpec& feed) { return !IsFloat(feed.sample.dtype); };
  if (data.text.tokenizer != nullptr || std::ranges::none_of(data.bound.feeds, takes_ids)) return data.text.tokenizer;
  const std::string folder = FindTokenizerFolder(run_.config.model);
  if (folder.empty()) return nullptr;
  auto tokenizer = LoadTokenizer(folder);
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

absl::Status Recorder::WriteTokenizer() const {
  const auto tokenizer = FindTokenizer();
  if (tokenizer == nullptr) return absl::OkStatus();
  const std::string folder = folder_.File(kTokenizerFolder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [name, bytes] : tokenizer->files()) RETURN_IF_ERROR(WriteTextFile(StrCat(folder, "/", name), bytes));
  return absl::OkStatus();
}

// Ignores errors, which the evaluation reports as well: only report.html needs the result.
std::optional<Quality> Recorder::EvaluateForReport(const std::atomic<bool>* stop) {
  if (!run_.has_eval() || run_.data.synthetic || run_.session->holds_partial_weights()) return std::nullopt;
  auto quality = EvaluateQuality(*run_.session, run_.eval, kReportedSamples, run_.config.ignore_index, stop);
  return quality.ok() ? *std::move(quality) : std::nullopt;
}

absl::Status Recorder::Begin() {
  RETURN_IF_ERROR(CheckModelCanBeWritten());
  RETURN_IF_ERROR(OpenSamples());
  if (!recorded_.continues_folder) RETURN_IF_ERROR(folder_.RemoveOldRun());
  RETURN_IF_ERROR(WriteSettings());
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
  return BeginCheckpoints();
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
  WarnAtSmallScale(event.report, &warnings_);
  WarnOfOutliers(event.outliers);
  WarnOfNoGradient(event);
  display_.ShowProgress(event);
  if (event.kind != TrainEvent::Kind::kEval) return;
  if (event.step == 0) WarnAtChance(run_, event.eval, &warnings_);
  WriteSamples(event.step);
}

// Warns of the first, tenth, hundredth … outlier of a kind; metrics.jsonl has all.
void Recorder::WarnOfOutliers(const std::vector<Outlier>& outliers) {
  for (const Outlier& o : outliers) {
    int64_t number = ++outliers_[o.of], rest = number;
    while (rest % 10 == 0) rest /= 10;
    if (rest != 1) continue;
    warnings_.Add(StrCat("update ", o.step, ": ", o.of == Outlier::Of::kLoss ? "the loss" : "the gradient norm", " is ",
                         FormatNumber(o.value), ", the median of the updates before it ", FormatNumber(o.median),
                         number == 1 ? " (`dump_order` lists the samples of each update)"
                                     : StrCat("; ", number, " such updates so far")));
  }
}

// Warns of a gradient norm of exactly 0: rounding makes it positive unless the loss depends on no trained weight.
void Recorder::WarnOfNoGradient(const TrainEvent& event) {
  const StepReport& report = event.report;
  if (event.kind != TrainEvent::Kind::kStep || report.weight <= 0 || report.skipped > 0 || report.grad_norm != 0)
    return;
  if (std::exchange(warned_of_zero_gradient_, true)) return;
  warnings_.Add(StrCat("update ", event.step,
                       ": the gradient of every trained weight is exactly 0: none of them changes ",
                       "the loss of these samples (`logits` and `loss` choose what is trained on)"));
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

// Returns the last weights, or their averages if these are exported.
absl::StatusOr<std::map<std::string, HostTensor>> Recorder::SessionWeights() {
  const bool average = ExportsAverage(run_.config);
  if (run_.backend->ReadsHostMemory()) return ViewWeights(*run_.session, average);
  RETURN_IF_ERROR(run_.session->UseAverage(average));
  auto weights = run_.session->Weights();
  RETURN_IF_ERROR(run_.session->UseAverage(false));
  return weights;
}

absl::StatusOr<std::map<std::string, HostTensor>> Recorder::WeightsToExport(RunSummary* summary) {
  summary->exported_step = summary->result.steps;
  const bool average = ExportsAverage(run_.config);
  const bool has_best = run_.config.export_weights == "best" && best_.step >= 0;
  if (has_best) summary->exported_metric = "best";
  if (has_best && best_.step != summary->result.steps) {
    auto best =
        ReadCheckpointWeights(StrCat(folder_.File(kCheckpointsFolder), "/", CheckpointName(best_.step)), average);
    if (best.ok()) {
      summary->exported_step = best_.step;
      return best;
    }
    // The save of the best weights may have failed: exports the last ones instead.
    summary->exported_metric = average ? "ema" : "last";
    warnings_.Add(StrCat("the best weights are lost, the model has the last ones: ", ToStd(best.status().message())));
  }
  return SessionWeights();
}

// Estimates the size of the model with its external data.
int64_t Recorder::ModelBytes(const std::map<std::string, HostTensor>& weights) const {
  std::error_code error;
  const auto file = static_cast<int64_t>(std::filesystem::file_size(run_.data.model->path(), error));
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights) bytes += static_cast<int64_t>(tensor.bytes().size());
  return std::max(bytes, error ? 0 : file);
}

// Removes older checkpoints if the model needs their space on disk.
void Recorder::MakeRoomFor(const std::map<std::string, HostTensor>& weights) {
  if (writer_ == nullptr) return;
  const absl::Status ignored = writer_->MakeRoom(ModelBytes(weights));  // a full disk then fails the export
}

// Follows a folder that was moved or removed during the run, and rewrites missing files.
void Recorder::FindFolderAgain() {
  const auto found = folder_.FindAgain();
  if (!found.ok()) return;  // later writes fail and are reported
  if (!found->empty()) warnings_.Add(*found);
  std::error_code ignored;
  const bool complete = std::filesystem::exists(folder_.File("config.flags"), ignored) &&
                        (!run_.data.has_samples() || std::filesystem::exists(folder_.File("preprocess.json"), ignored));
  const absl::Status written = complete ? absl::OkStatus() : WriteSettings();
  if (!written.ok()) warnings_.Add(std::string(ToStd(written.message())));
}

// Adds to the error of a failed export the command that exports the newest checkpoint.
absl::Status Recorder::NameCheckpoint(const absl::Status& failed) const {
  if (failed.ok() || writer_ == nullptr || writer_->newest_written() <= 0) return failed;
  return absl::Status(failed.code(), StrCat(ToStd(failed.message()), "; update ", writer_->newest_written(),
                                            " is saved: onnxtrain export `model` ", run_.data.model->path(),
                                            " `checkpoint` ", folder_.path(), " `out` FILE.onnx"));
}

bool Recorder::MergesAdapters() const {
  return run_.data.model->edits().low_rank.empty() || WritesAdapterAs(run_.config, "merged", kAdapterForms);
}

// The files of adapters for these weights.
AdapterFiles Recorder::ListAdapterFiles(const std::map<std::string, HostTensor>& weights) const {
  const bool adapts = !run_.data.model->edits().low_rank.empty();
  return {.config = run_.config,
          .model = *run_.data.model,
          .weights = weights,
          .peft = adapts && WritesAdapterAs(run_.config, "peft", kAdapterForms),
          .onnx = adapts && WritesAdapterAs(run_.config, "onnx", kAdapterForms)};
}

AdapterPaths Recorder::MakeAdapterPaths() const {
  return {.peft = folder_.File(kAdapterFolder),
          .adapter = folder_.File(kOrtAdapterFile),
          .base = folder_.File(kAdapterInputsFile),
          .genai = folder_.File(kGenaiFolder)};
}

// Writes the model once more in a folder like the one that it came from. Warns instead of failing, since model.onnx is
// written.
void Recorder::WriteFolderOfModel() {
  if (!run_.data.has_samples() || run_.data.synthetic || FindModelFolder(run_.config.model).empty()) return;
  const auto tokenizer = FindTokenizer();
  const TrainedModel trained{.original = run_.config.model,
                             .file = folder_.File(ModelFile()),
                             .preprocess = MakePreprocess(run_),
                             .tokenizer = tokenizer.get()};
  const absl::Status written = WriteModelFolder(trained, folder_.File(kModelFolder));
  if (written.ok()) files_.emplace_back(kModelFolder);
  if (!written.ok()) warnings_.Add(StrCat("the model's folder is not written: ", ToStd(written.message())));
}

// Evaluates the exported weights and the file that has their sums in its blocks.
absl::StatusOr<std::pair<double, double>> Recorder::EvaluateRequantized(const RunSummary& summary) {
  double before = summary.result.eval.loss;
  if (summary.exported_step != summary.result.steps) {
    RETURN_IF_ERROR(run_.session->SetWeights(*exported_));
    ASSIGN_OR_RETURN(const EvalMetrics metrics, EvaluateAll(*run_.session, run_.eval, 0));
    before = metrics.loss;
  }
  ASSIGN_OR_RETURN(const double written, EvaluateWrittenModel(run_, folder_.File(ModelFile())));
  return std::pair(before, written);
}

// Records the errors of sums that were quantized and, if there is data for it, the change of the loss.
void Recorder::CompareRequantized(const std::vector<std::pair<std::string, double>>& errors, RunSummary* summary) {
  if (errors.empty()) return;
  const auto worst = std::ranges::max_element(errors, {}, &std::pair<std::string, double>::second);
  RequantizedSummary& sums = summary->requantized;
  sums = {.weights = std::ssize(errors), .worst_error = worst->second, .worst = worst->first};
  if (!run_.has_eval() || run_.session->holds_partial_weights()) return;
  const auto losses = EvaluateRequantized(*summary);
  if (!losses.ok())
    return warnings_.Add(StrCat("the requantized model is not evaluated: ", ToStd(losses.status().message())));
  std::tie(sums.loss_before, sums.loss) = *losses;
  display_.ShowInfo(absl::StrFormat("requantized: evaluation loss %.6g, %+.3g from %.6g with the adapter beside",
                                    *sums.loss, *sums.loss - *sums.loss_before, *sums.loss_before));
}

absl::Status Recorder::WriteModel(RunSummary* summary) {
  const std::string name = ModelFile();
  ASSIGN_OR_RETURN(auto chosen, WeightsToExport(summary));
  const bool in_session = run_.backend->ReadsHostMemory() && summary->exported_step == summary->result.steps;
  if (run_.has_eval()) exported_ = in_session ? std::map<std::string, HostTensor>() : chosen;  // shares the bytes
  ASSIGN_OR_RETURN(const auto weights, run_.ToExport(std::move(chosen)));
  summary->base = SummarizeBase(run_.data.model->edits().blocks, *run_.data.model);
  summary->adapters = SummarizeAdapters(run_.data.model->edits().low_rank, weights);
  ASSIGN_OR_RETURN(const auto adapter, WriteAdapterFiles(ListAdapterFiles(weights), MakeAdapterPaths()));
  std::vector<std::string> written;
  for (const std::string& path : adapter) written.push_back(std::filesystem::path(path).filename().string());
  if (MergesAdapters()) {
    MakeRoomFor(weights);
    std::vector<std::pair<std::string, double>> errors;
    ASSIGN_OR_RETURN(const auto edits, Export(*run_.data.model, weights, folder_.File(name), &errors));
    for (const std::string& edit : edits) display_.ShowInfo("export: " + edit);
    written.insert(written.begin(), name);
    WriteFolderOfModel();
    CompareRequantized(errors, summary);
  }
  summary->exported = true;
  summary->exported_file = written.front();
  files_.insert(files_.begin(), written.begin(), written.end());
  std::error_code ignored;
  std::filesystem::remove(folder_.File(kUnfinishedFile), ignored);
  return absl::OkStatus();
}

// Writes the last good weights. A failed update may have changed some of the weights; then the newest checkpoint has
// the last good ones.
absl::Status Recorder::WriteUnfinished() {
  std::map<std::string, HostTensor> weights;
  if (at_end_) {
    ASSIGN_OR_RETURN(weights, SessionWeights());
  } else {
    std::vector<std::string> skipped;
    if (checkpoints_ == nullptr || ListCheckpoints(checkpoints_->handle()).empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const StoredCheckpoint newest, OpenNewestCheckpoint(folder_.File(kCheckpointsFolder), &skipped));
    ASSIGN_OR_RETURN(weights, ReadWeights(newest, ExportsAverage(run_.config)));
  }
  ASSIGN_OR_RETURN(weights, run_.ToExport(std::move(weights)));
  MakeRoomFor(weights);
  RETURN_IF_ERROR(Export(*run_.data.model, weights, folder_.File(kUnfinishedFile)).status());
  files_.insert(files_.begin(), kUnfinishedFile);
  return absl::OkStatus();
}

// Predicts with the exported weights. Runs last, so that model and summary are written even if it fails.
absl::Status Recorder::EvaluateModel() {
  if (!exported_) return absl::OkStatus();
  RETURN_IF_ERROR(run_.session->SetWeights(*exported_));
  RETURN_IF_ERROR(run_.session->UseAverage(exported_->empty() && ExportsAverage(run_.config)));
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
  if (failure.empty()) WarnIfWorse(run_, result, &warnings_);
  if (writer_ != nullptr) WarnOfFailedSave(writer_->Finish());
  WriteProfile();
  FindFolderAgain();
  RunSummary summary = Summarize(run_, result, recorded_.resident_at_start, used_);
  const bool stopped = result.stop_reason == "signal";
  const absl::Status written = NameCheckpoint(failure.empty() && !stopped ? WriteModel(&summary) : WriteUnfinished());
  summary.measured_peak_bytes = PeakResidentBytes() - recorded_.resident_at_start;  // which writing may have raised
  if (writer_ != nullptr && writer_->removed_early() > 0)
    warnings_.Add(
        StrCat("the disk was full: ", writer_->removed_early(), " checkpoints were removed before their time"));
  if (checkpoints_ != nullptr && !ListCheckpoints(checkpoints_->handle()).empty())
    files_.emplace_back(kCheckpointsFolder);
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
