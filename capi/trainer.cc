#include "capi/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "absl/status/statusor.h"
#include "capi/tensors.h"
#include "frontend/base/status.h"
#include "frontend/onnx/interop/ort_artifacts.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/write/export.h"
#include "optim/config/config.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/session_setup.h"

namespace onnxtrain::capi {
namespace {

// Parses JSON; null means all defaults. Fails on fields of the command line, and gives the reason.
absl::StatusOr<TrainConfig> ReadConfig(const char* json) {
  if (json == nullptr) return TrainConfig();
  auto config = FromJson(json);
  if (!config.ok()) return Annotate(config.status(), "configuration: ");
  for (const std::string& name : config->specified) {
    if ((FindField(name)->tasks & kTaskTrain) == 0)
      return Invalid("configuration: `", name, "`: configures no training");
  }
  const bool folder = !config->out.empty() || !config->resume.empty();
  RETURN_IF_ERROR(Annotate(RefuseUnused(*config, {.is_program = false, .has_folder = folder}), "configuration: "));
  if (config->export_weights == "best")
    return Invalid("configuration: `export_weights` best: the library keeps no checkpoint of the best weights");
  return config;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Trainer>> Trainer::Create(const std::shared_ptr<const OnnxModel>& model,
                                                         const char* config, const CallerSample& sample) {
  ASSIGN_OR_RETURN(const TrainConfig parsed, ReadConfig(config));
  ASSIGN_OR_RETURN(RunStart start, FindRunStart(parsed));
  if (!start.config.data.empty())
    return Invalid("`resume` ", parsed.resume, ": is a run on `data`, which the command line resumes");
  RETURN_IF_ERROR(CheckModelOfCheckpoint(*model, &start));
  std::unique_ptr<OutputFolder> folder;
  if (!start.config.out.empty()) {
    ASSIGN_OR_RETURN(folder, OpenRunFolder(start));
  }
  ASSIGN_OR_RETURN(TrainingRun run,
                   PrepareTraining(start.config, model, MakeBackend, {.samples = {.caller = &sample}}));
  std::shared_ptr<Trainer> trainer(new Trainer(std::move(run)));
  if (folder == nullptr) return trainer;
  const bool resumes = start.point.has_value();
  ASSIGN_OR_RETURN(trainer->recorded_, CallerRun::Begin(std::move(start), std::move(folder), &trainer->run_));
  if (resumes) {
    ASSIGN_OR_RETURN(trainer->rate_factor_, ReadPlateau(trainer->session()));
  }
  return trainer;
}

namespace {

// Fails if `path` is a file of the model. A model from bytes has only artifacts of ONNX Runtime as files.
absl::Status CheckNotOfModel(const std::string& path, const OnnxModel& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return absl::OkStatus();
  for (const std::string& file : model.in_memory() ? ListOrtArtifacts(model.path()) : ListModelFiles(model.path())) {
    if (std::filesystem::equivalent(path, file, ignored))
      return Invalid(path, ": is a file of the model, which is still needed");
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Work>
auto Trainer::WithAverage(bool average, const Work& work) -> decltype(work()) {
  RETURN_IF_ERROR(session().UseAverage(average));
  auto result = work();
  RETURN_IF_ERROR(session().UseAverage(false));
  return result;
}

absl::StatusOr<StepReport> Trainer::Report() {
  ASSIGN_OR_RETURN(const StepReport report, session().Report());
  if (recorded_ != nullptr) recorded_->Add(report);
  return report;
}

// Takes the report of earlier updates, so that the next report covers a single update.
absl::Status Trainer::ReportEarlierSteps() {
  return std::exchange(unreported_, false) ? Report().status() : absl::OkStatus();
}

template <typename Update>
absl::Status Trainer::Record(OnnxtrainStepResult* result, int64_t samples, const Update& update) {
  if (recorded_ != nullptr) recorded_->BeginUpdate();
  RETURN_IF_ERROR(update());
  RETURN_IF_ERROR(ReportStep(result));
  return recorded_ != nullptr ? recorded_->EndUpdate(samples) : absl::OkStatus();
}

absl::Status Trainer::Step(std::span<const NamedTensorView> batch, OnnxtrainStepResult* result) {
  RETURN_IF_ERROR(CheckOpen());
  if (result != nullptr) RETURN_IF_ERROR(ReportEarlierSteps());
  ASSIGN_OR_RETURN(const GlobalBatch* global_batch, run_.batches.Fill(batch, true));
  accumulated_ = 0;
  return Record(result, global_batch->samples(), [&] { return session().Step(*global_batch); });
}

absl::Status Trainer::ReportStep(OnnxtrainStepResult* result) {
  unreported_ = result == nullptr;
  if (result == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const StepReport report, Report());
  *result = {.loss = report.skipped > 0 ? std::numeric_limits<double>::quiet_NaN() : report.loss,
             .grad_norm = report.grad_norm,
             .learning_rate = report.learning_rate,
             .step = session().steps(),
             .skipped = report.skipped};
  return absl::OkStatus();
}

absl::Status Trainer::Accumulate(std::span<const NamedTensorView> batch) {
  ASSIGN_OR_RETURN(const GlobalBatch* global_batch, run_.batches.Fill(batch, true));
  RETURN_IF_ERROR(session().Accumulate(*global_batch));
  accumulated_ += global_batch->samples();
  return absl::OkStatus();
}

absl::Status Trainer::Apply(OnnxtrainStepResult* result) {
  RETURN_IF_ERROR(CheckOpen());
  if (result != nullptr) RETURN_IF_ERROR(ReportEarlierSteps());
  return Record(result, std::exchange(accumulated_, 0), [&] { return session().Apply(); });
}

absl::StatusOr<GradientResult> Trainer::GetGradients(std::span<const NamedTensorView> batch, GradientsOf of) {
  ASSIGN_OR_RETURN(const GlobalBatch* global_batch, run_.batches.Fill(batch, true));
  return session().Gradients(*global_batch, of);
}

absl::StatusOr<OnnxtrainEvaluation> Trainer::Evaluate(std::span<const NamedTensorView> batch) {
  ASSIGN_OR_RETURN(const GlobalBatch* global_batch, run_.batches.Fill(batch, true));
  ASSIGN_OR_RETURN(const Evaluation e, WithAverage(true, [&] { return session().Evaluate(*global_batch); }));
  const LossChoice& loss = session().loss();
  return OnnxtrainEvaluation{.loss = MeanLoss(loss, e),
                             .weight = e.weights[loss.lead],
                             .correct = loss.classes ? e.correct : std::numeric_limits<double>::quiet_NaN(),
                             .targets = e.targets,
                             .samples = global_batch->samples()};
}

absl::StatusOr<std::map<std::string, HostTensor>> Trainer::Predict(std::span<const NamedTensorView> batch) {
  ASSIGN_OR_RETURN(const GlobalBatch* global_batch, run_.batches.Fill(batch, false));
  ASSIGN_OR_RETURN(Evaluation e, WithAverage(true, [&] { return session().Predict(*global_batch); }));
  return std::move(e.outputs);
}

absl::StatusOr<StateTensor> Trainer::FindParameter(std::string_view name) {
  ASSIGN_OR_RETURN(const std::vector<StateTensor> state, session().State());
  const auto found = std::ranges::find(state, name, &StateTensor::name);
  if (found == state.end() || name.starts_with('$'))
    return absl::NotFoundError(StrCat("there is no trained weight '", name, "'"));
  return *found;
}

absl::StatusOr<std::map<std::string, HostTensor>> Trainer::GetParameters(const char* name) {
  if (name == nullptr) return session().Weights();
  ASSIGN_OR_RETURN(const StateTensor parameter, FindParameter(name));
  ASSIGN_OR_RETURN(HostTensor value, ReadRegion(parameter.region));
  return std::map<std::string, HostTensor>{{name, std::move(value)}};
}

absl::StatusOr<OnnxtrainTensor> Trainer::ViewParameter(const char* name) {
  ASSIGN_OR_RETURN(const StateTensor parameter, FindParameter(name));
  if (run_.backend->device() != "cpu")
    return absl::UnimplementedError(StrCat("weights are in the memory of ", run_.backend->device()));
  const auto& [held, type] = *viewed_.emplace(name, parameter.region.type).first;
  OnnxtrainTensor view = Describe(held, type);
  const BufferView& memory = parameter.region.view;
  view.data = static_cast<const std::byte*>(memory.buffer->data()) + memory.offset;
  view.bytes = type.bytes();
  return view;
}

absl::Status Trainer::SetParameters(std::span<const NamedTensorView> parameters) {
  std::map<std::string, HostTensor> set;
  for (const auto& [name, tensor] : parameters) {
    ASSIGN_OR_RETURN(const StateTensor parameter, FindParameter(name));
    const Type& type = parameter.region.type;
    if (tensor.shape() != type.shape || !IsFloat(tensor.dtype()))
      return Invalid("weight '", name, "' is ", ToString(type), ", got ", ToString(tensor.type()));
    if (!set.emplace(name, tensor.CastTo(type.dtype)).second) return Invalid("weight '", name, "' is there twice");
  }
  return session().SetWeights(set);
}

absl::StatusOr<double> Trainer::GetLearningRate() {
  RETURN_IF_ERROR(Report().status());  // counts skipped updates
  unreported_ = false;
  const SessionCounters counters = session().counters();
  const double lr = run_.optimizer.spec.lr;
  return lr * rate_factor_ * ScheduleFactor(run_.optimizer.schedule, lr, counters.attempted - counters.reported_skips);
}

absl::Status Trainer::SetLearningRate(double rate) {
  const double lr = run_.optimizer.spec.lr;
  if (!std::isfinite(rate) || rate < 0) return Invalid("learning rate ", rate, ": expected a number of at least 0");
  if (lr == 0) return Invalid("`lr` 0: a rate of 0 cannot be changed");
  RETURN_IF_ERROR(session().SetPlateau(rate / lr));
  rate_factor_ = rate / lr;
  return absl::OkStatus();
}

absl::Status Trainer::LoadState(std::string_view bytes) {
  if (recorded_ != nullptr) return Invalid("a trainer with the folder of a run goes on by `resume`");
  ASSIGN_OR_RETURN(rate_factor_, LoadSessionState(bytes, &session()));
  unreported_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, HostTensor>> Trainer::WeightsToExport() {
  return WithAverage(run_.config.export_weights != "last", [&] { return session().Weights(); });
}

absl::Status Trainer::CheckOpen() const { return recorded_ != nullptr ? recorded_->CheckOpen() : absl::OkStatus(); }

absl::Status Trainer::RecordEvaluation(const OnnxtrainEvaluation& evaluation) {
  if (recorded_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckOpen());
  const bool counts = evaluation.targets > 0 && !std::isnan(evaluation.correct);
  recorded_->RecordEvaluation({.loss = evaluation.loss,
                               .accuracy = counts ? evaluation.correct / evaluation.targets : -1,
                               .samples = evaluation.samples});
  return absl::OkStatus();
}

absl::StatusOr<std::string> Trainer::FinishRun() {
  if (recorded_ == nullptr) return Invalid("the trainer has no folder of a run (`out`)");
  return recorded_->Finish();
}

absl::Status Trainer::ExportToFile(const std::string& path) {
  const OnnxModel& model = *run_.data.model;
  RETURN_IF_ERROR(CheckNotOfModel(path, model));
  ASSIGN_OR_RETURN(const auto weights, WeightsToExport());
  return Export(model, weights, path).status();
}

absl::StatusOr<std::string> Trainer::ExportToBytes() {
  ASSIGN_OR_RETURN(const auto weights, WeightsToExport());
  return ExportBytes(*run_.data.model, weights);
}

}  // namespace onnxtrain::capi
