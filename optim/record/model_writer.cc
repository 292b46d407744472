#include "optim/record/model_writer.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/onnx/write/export.h"
#include "optim/loop/evaluate.h"
#include "optim/plan/folders.h"
#include "optim/plan/session_setup.h"
#include "optim/record/adapter_summary.h"
#include "optim/record/model_folder.h"
#include "optim/record/run_settings.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

constexpr char kAdapterForms[] = "merged,peft";
constexpr char kUnfinishedFile[] = "model.unfinished.onnx";

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

// Returns the configuration without what changes the weights that are trained.
TrainConfig WithoutAdapters(TrainConfig config) {
  for (auto* names : {&config.lora_rank, &config.adapter, &config.train, &config.freeze}) names->clear();
  return config;
}

// Returns the loss of a written model file on the evaluation data of the run, which must have some.
absl::StatusOr<double> EvaluateWrittenModel(const TrainingRun& run, const std::string& path) {
  ASSIGN_OR_RETURN(const auto model, OnnxModel::Load(path, {}));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(WithoutAdapters(run.config), *model, run.data.eval.bound,
                                                              run.data.loss, run.batch.micro));
  options.optimizer.rule = "sgd";  // keeps no moments: nothing is trained
  const auto models = std::make_shared<PreparedModels>(model);
  RETURN_IF_ERROR(PrepareFor(*models, run.data.eval.bound, &options, false).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Create(models, run.backend.get(), std::move(options)));
  ASSIGN_OR_RETURN(const EvalMetrics metrics, EvaluateAll(*session, run.eval, 0));
  return metrics.loss;
}

}  // namespace

bool ExportsAverage(const TrainConfig& c) { return KeepsAverage(c) && c.export_weights != "last"; }

absl::StatusOr<int64_t> ModelWriter::CheckCanBeWritten() {
  ASSIGN_OR_RETURN(auto trained, SessionWeights());
  ASSIGN_OR_RETURN(const auto weights, run_.ToExport(std::move(trained)));
  RETURN_IF_ERROR(CheckAdapterFiles(ListAdapterFiles(weights), MakeAdapterPaths()));
  if (MergesAdapters())
    RETURN_IF_ERROR(Annotate(CheckExport(*run_.data.model, weights, folder_.File(ModelFile())),
                             "the model could not be written: "));
  return ModelBytes(weights);
}

// Returns the last weights, or their averages if these are exported.
absl::StatusOr<std::map<std::string, HostTensor>> ModelWriter::SessionWeights() {
  const bool average = ExportsAverage(run_.config);
  if (run_.backend->ReadsHostMemory()) return ViewWeights(*run_.session, average);
  RETURN_IF_ERROR(run_.session->UseAverage(average));
  auto weights = run_.session->Weights();
  RETURN_IF_ERROR(run_.session->UseAverage(false));
  return weights;
}

absl::StatusOr<std::map<std::string, HostTensor>> ModelWriter::WeightsToExport(const BestEvaluation& best,
                                                                               RunSummary* summary) {
  summary->exported_step = summary->result.steps;
  const bool average = ExportsAverage(run_.config);
  const bool has_best = run_.config.export_weights == "best" && best.step >= 0;
  if (has_best) summary->exported_metric = "best";
  if (has_best && best.step != summary->result.steps) {
    auto weights =
        ReadCheckpointWeights(StrCat(folder_.File(kCheckpointsFolder), "/", CheckpointName(best.step)), average);
    if (weights.ok()) {
      summary->exported_step = best.step;
      return weights;
    }
    // The save of the best weights may have failed: exports the last ones instead.
    summary->exported_metric = average ? "ema" : "last";
    warnings_.Add(
        StrCat("the best weights are lost, the model has the last ones: ", ToStd(weights.status().message())));
  }
  return SessionWeights();
}

// Estimates the size of the model with its external data.
int64_t ModelWriter::ModelBytes(const std::map<std::string, HostTensor>& weights) const {
  std::error_code error;
  const auto file = static_cast<int64_t>(std::filesystem::file_size(run_.data.model->path(), error));
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights) bytes += static_cast<int64_t>(tensor.bytes().size());
  return std::max(bytes, error ? 0 : file);
}

// Removes older checkpoints if the model needs their space on disk.
void ModelWriter::MakeRoomFor(const std::map<std::string, HostTensor>& weights) {
  if (checkpoints_ == nullptr) return;
  const absl::Status ignored = checkpoints_->MakeRoom(ModelBytes(weights));  // a full disk then fails the export
}

// Adds to the error of a failed export the command that exports the newest checkpoint.
absl::Status ModelWriter::NameCheckpoint(const absl::Status& failed) const {
  if (failed.ok() || checkpoints_ == nullptr || checkpoints_->newest_written() <= 0) return failed;
  return absl::Status(failed.code(), StrCat(ToStd(failed.message()), "; update ", checkpoints_->newest_written(),
                                            " is saved: onnxtrain export `model` ", run_.data.model->path(),
                                            " `checkpoint` ", folder_.path(), " `out` FILE.onnx"));
}

bool ModelWriter::MergesAdapters() const {
  return run_.data.model->edits().low_rank.empty() || WritesAdapterAs(run_.config, "merged", kAdapterForms);
}

// The files of adapters for these weights.
AdapterFiles ModelWriter::ListAdapterFiles(const std::map<std::string, HostTensor>& weights) const {
  const bool adapts = !run_.data.model->edits().low_rank.empty();
  return {.config = run_.config,
          .model = *run_.data.model,
          .weights = weights,
          .peft = adapts && WritesAdapterAs(run_.config, "peft", kAdapterForms),
          .onnx = adapts && WritesAdapterAs(run_.config, "onnx", kAdapterForms)};
}

AdapterPaths ModelWriter::MakeAdapterPaths() const {
  return {.peft = folder_.File(kAdapterFolder),
          .adapter = folder_.File(kOrtAdapterFile),
          .base = folder_.File(kAdapterInputsFile),
          .genai = folder_.File(kGenaiFolder)};
}

// Writes the model once more in a folder like the one that it came from. Warns instead of failing, since model.onnx is
// written.
void ModelWriter::WriteFolderOfModel(std::vector<std::string>* files) {
  if (!run_.data.has_samples() || run_.data.synthetic || FindModelFolder(run_.config.model).empty()) return;
  const auto tokenizer = FindTokenizer(run_);
  const TrainedModel trained{.original = run_.config.model,
                             .file = folder_.File(ModelFile()),
                             .preprocess = MakePreprocess(run_),
                             .tokenizer = tokenizer.get()};
  const absl::Status written = WriteModelFolder(trained, folder_.File(kModelFolder));
  if (written.ok()) files->emplace_back(kModelFolder);
  if (!written.ok()) warnings_.Add(StrCat("the model's folder is not written: ", ToStd(written.message())));
}

// Evaluates the exported weights and the file that has their sums in its blocks.
absl::StatusOr<std::pair<double, double>> ModelWriter::EvaluateRequantized(const RunSummary& summary) {
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
void ModelWriter::CompareRequantized(const std::vector<std::pair<std::string, double>>& errors, RunSummary* summary) {
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

absl::Status ModelWriter::WriteModel(const BestEvaluation& best, RunSummary* summary, std::vector<std::string>* files) {
  const std::string name = ModelFile();
  ASSIGN_OR_RETURN(auto chosen, WeightsToExport(best, summary));
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
    WriteFolderOfModel(files);
    CompareRequantized(errors, summary);
  }
  summary->exported = true;
  summary->exported_file = written.front();
  files->insert(files->begin(), written.begin(), written.end());
  std::error_code ignored;
  std::filesystem::remove(folder_.File(kUnfinishedFile), ignored);
  return absl::OkStatus();
}

absl::Status ModelWriter::WriteLastGood(bool in_session, std::vector<std::string>* files) {
  std::map<std::string, HostTensor> weights;
  if (in_session) {
    ASSIGN_OR_RETURN(weights, SessionWeights());
  } else {
    std::vector<std::string> skipped;
    ASSIGN_OR_RETURN(const StoredCheckpoint newest, OpenNewestCheckpoint(folder_.File(kCheckpointsFolder), &skipped));
    ASSIGN_OR_RETURN(weights, ReadWeights(newest, ExportsAverage(run_.config)));
  }
  ASSIGN_OR_RETURN(weights, run_.ToExport(std::move(weights)));
  MakeRoomFor(weights);
  RETURN_IF_ERROR(Export(*run_.data.model, weights, folder_.File(kUnfinishedFile)).status());
  files->insert(files->begin(), kUnfinishedFile);
  return absl::OkStatus();
}

absl::Status ModelWriter::Write(const BestEvaluation& best, RunSummary* summary, std::vector<std::string>* files) {
  return NameCheckpoint(WriteModel(best, summary, files));
}

absl::Status ModelWriter::WriteUnfinished(bool in_session, std::vector<std::string>* files) {
  return NameCheckpoint(WriteLastGood(in_session, files));
}

absl::Status ModelWriter::UseExported() {
  RETURN_IF_ERROR(run_.session->SetWeights(*exported_));
  return run_.session->UseAverage(exported_->empty() && ExportsAverage(run_.config));
}

}  // namespace onnxtrain
