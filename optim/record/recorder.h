// Trains, and writes the folder of the run: model, metrics, checkpoints, summary.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/plan/training_run.h"
#include "optim/record/checkpoint/checkpoint_writer.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/model_writer.h"
#include "optim/record/order_file.h"
#include "optim/record/quality.h"
#include "optim/record/run_folder.h"
#include "optim/record/run_messages.h"
#include "optim/record/sample_answers.h"
#include "optim/record/telemetry/metrics_file.h"
#include "optim/record/telemetry/summary.h"
#include "optim/record/telemetry/tensorboard.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {

// The parts of a run that a Recorder needs. Pointers must outlive the recorder.
struct RecordedRun {
  TrainingRun* run;
  OutputFolder* folder;
  RunDisplay* display;
  TrainConfig resolved;
  std::string settings_from;                    // a sentence at the top of config.flags and config.yaml; may be empty
  int64_t resident_at_start = 0;                // bytes
  std::string data_fingerprint, external_data;  // as in RunState
  std::optional<LoopPosition> resumed;          // position of the restored session
  bool continues_folder = false;                // the folder holds the files of the resumed run
  std::unique_ptr<Trace> trace;                 // for `profile`; may be null
  std::unique_ptr<OrderFile> order;             // for `dump_order`; may be null
  SavingGroup* group = nullptr;                 // as in CheckpointOptions
};

// The result of a run.
struct RunOutcome {
  RunSummary summary;
  std::string json;                // the text of summary.json
  std::vector<std::string> files;  // names in the folder
  absl::Status status;             // error of the training, or of writing the model or the summary
  bool bad_input = false;          // an invalid sample ended the training
  bool summary_written = false;
  // For report.html: predictions with the initial and with the exported weights. report_status: why `after` is missing.
  std::optional<Quality> before, after;
  absl::Status report_status;
};

// Writes the folder of a run, which it trains itself or observes as the TrainObserver of another loop.
class Recorder : public TrainObserver {
 public:
  explicit Recorder(RecordedRun recorded)
      : recorded_(std::move(recorded)),
        run_(*recorded_.run),
        folder_(*recorded_.folder),
        display_(*recorded_.display),
        warnings_(run_, recorded_.display),
        model_(&run_, &folder_, &display_, &warnings_) {}

  // Removes an old run if the folder is to be replaced, and opens the files of this one.
  absl::Status Begin();
  // Trains after a successful Begin. An unfinished run leaves its last finite weights in a checkpoint and in
  // model.unfinished.onnx. With evaluation data, the session holds the exported weights afterwards.
  RunOutcome TrainAndWrite();

  // Writes the final files after another loop ended with `result`.
  RunOutcome Finish(const TrainResult& result);

  void OnEvent(const TrainEvent& event) override;
  absl::Status OnBatch(int64_t update, const Batch& batch) override;
  void OnNotFinite(const std::string& where) override;
  bool saves() const override { return true; }
  void Save(const LoopPosition& position, SaveReason reason) override;

 private:
  void FindFolderAgain();
  absl::Status BeginCheckpoints(int64_t model_bytes);
  bool HasCheckpoints() const;
  void OpenHistograms();
  absl::Status OpenSamples();
  void WriteSamples(int64_t step);
  absl::StatusOr<TrainResult> Loop();
  RunState MakeState(const LoopPosition& position, SaveReason reason) const;
  void WarnOfFailedSave(const absl::Status& status);
  void WriteProfile();
  std::optional<Quality> EvaluateForReport(const std::atomic<bool>* stop);
  absl::Status EvaluateModel();
  RunOutcome Finish(const TrainResult& result, const std::string& failure);

  RecordedRun recorded_;
  TrainingRun& run_;
  OutputFolder& folder_;
  RunDisplay& display_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<HistogramRecorder> histograms_;  // null: none are written
  std::unique_ptr<SampleWriter> samples_;          // null: no prompts are answered
  std::unique_ptr<CheckpointFolder> checkpoints_;  // null: none are written
  std::unique_ptr<CheckpointWriter> writer_;
  BestEvaluation best_;
  std::optional<TrainResult> at_end_;  // set once the session has its final weights
  int64_t saved_step_ = -1;
  std::string not_finite_;                 // where the first gradient that is not finite arose; "" if all are finite
  ResourceReading used_;                   // means over the loop
  std::optional<Quality> before_, after_;  // of the initial and the exported weights
  RunWarnings warnings_;
  ModelWriter model_;
  std::vector<std::string> files_;
};

}  // namespace onnxtrain
