// Writes the trained model of a run: model.onnx, adapters, a folder like the one that the model came from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "optim/plan/training_run.h"
#include "optim/record/adapter_files.h"
#include "optim/record/checkpoint/checkpoint_writer.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/run_folder.h"
#include "optim/record/run_messages.h"
#include "optim/record/telemetry/summary.h"

namespace onnxtrain {

// Returns true if the averages of the weights are exported instead of the weights.
bool ExportsAverage(const TrainConfig& c);

// Names of written files are those in the folder of the run, and are added to `files`.
class ModelWriter {
 public:
  // All must outlive the object.
  ModelWriter(TrainingRun* run, const OutputFolder* folder, RunDisplay* display, RunWarnings* warnings)
      : run_(*run), folder_(*folder), display_(*display), warnings_(*warnings) {}

  // Fails before the training if the model could not be written after it. Returns an estimate of its bytes.
  absl::StatusOr<int64_t> CheckCanBeWritten();

  // Lets the model take the place of older checkpoints on disk. `checkpoints` must outlive the object.
  void ReplaceCheckpoints(CheckpointWriter* checkpoints) { checkpoints_ = checkpoints; }

  // Writes the last or the best weights, and describes them in *summary.
  absl::Status Write(const BestEvaluation& best, RunSummary* summary, std::vector<std::string>* files);

  // Writes the last good weights as model.unfinished.onnx. A failed update may have changed some weights of the session
  // (`in_session` is false); then the newest checkpoint has the last good ones.
  absl::Status WriteUnfinished(bool in_session, std::vector<std::string>* files);

  // Returns true if a model was written and there is data to evaluate it with.
  bool has_exported() const { return exported_.has_value(); }
  // Gives the session the weights that were written. Requires has_exported.
  absl::Status UseExported();

 private:
  std::string ModelFile() const { return run_.data.synthetic ? "model.synthetic.onnx" : "model.onnx"; }
  absl::Status WriteModel(const BestEvaluation& best, RunSummary* summary, std::vector<std::string>* files);
  absl::Status WriteLastGood(bool in_session, std::vector<std::string>* files);
  absl::StatusOr<std::map<std::string, HostTensor>> SessionWeights();
  absl::StatusOr<std::map<std::string, HostTensor>> WeightsToExport(const BestEvaluation& best, RunSummary* summary);
  int64_t ModelBytes(const std::map<std::string, HostTensor>& weights) const;
  void MakeRoomFor(const std::map<std::string, HostTensor>& weights);
  absl::Status NameCheckpoint(const absl::Status& failed) const;
  bool MergesAdapters() const;  // or has none
  AdapterFiles ListAdapterFiles(const std::map<std::string, HostTensor>& weights) const;
  AdapterPaths MakeAdapterPaths() const;
  void WriteFolderOfModel(std::vector<std::string>* files);
  absl::StatusOr<std::pair<double, double>> EvaluateRequantized(const RunSummary& summary);
  void CompareRequantized(const std::vector<std::pair<std::string, double>>& errors, RunSummary* summary);

  TrainingRun& run_;
  const OutputFolder& folder_;
  RunDisplay& display_;
  RunWarnings& warnings_;
  CheckpointWriter* checkpoints_ = nullptr;  // null: none are written
  // With evaluation data: the exported weights; empty if they are those of the session.
  std::optional<std::map<std::string, HostTensor>> exported_;
};

}  // namespace onnxtrain
