// Records a run whose training loop belongs to the calling program (C API, Python): the same metrics, checkpoints,
// model and summary as a run of `onnxtrain train`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/record/recorder.h"
#include "optim/record/run_start.h"

namespace onnxtrain {

// Records a run between its updates. Thread-compatible.
class CallerRun {
 public:
  // Starts the run, or resumes from the checkpoint in `start` and restores the session. `run` must outlive the result.
  static absl::StatusOr<std::unique_ptr<CallerRun>> Begin(RunStart start, std::unique_ptr<OutputFolder> folder,
                                                          TrainingRun* run);

  // Updates so far, including those of the resumed run.
  int64_t steps() const { return at_.result.steps; }

  // Enclose each update. EndUpdate counts the samples and writes metrics and a checkpoint if they are due.
  void BeginUpdate() { began_ = std::chrono::steady_clock::now(); }
  absl::Status EndUpdate(int64_t samples);
  // Adds a report that another caller took from Session::Report, so that the next line of metrics includes it.
  void Add(const StepReport& report);
  // Writes an evaluation of the current weights to the metrics.
  void RecordEvaluation(const EvalMetrics& metrics);

  // Fails once the run is finished.
  absl::Status CheckOpen() const;
  // Writes the last checkpoint, the model and summary.json, and returns the text of the summary.
  absl::StatusOr<std::string> Finish();

  // Returns the warnings and notes since the last call.
  std::vector<std::string> TakeLines() { return std::exchange(display_.lines, {}); }

 private:
  struct Lines : RunDisplay {
    void ShowWarning(const std::string& text) override { lines.push_back(text); }
    void ShowInfo(const std::string& text) override { lines.push_back(text); }
    std::vector<std::string> lines;
  };
  CallerRun(std::unique_ptr<OutputFolder> folder, TrainingRun* run) : folder_(std::move(folder)), run_(*run) {}

  absl::Status Open(RunStart start);
  absl::Status FindOutliers();
  absl::Status Log();
  void Save(SaveReason reason);
  double Seconds() const;

  const std::unique_ptr<OutputFolder> folder_;
  TrainingRun& run_;
  Lines display_;
  std::unique_ptr<Recorder> recorder_;
  LoopPosition at_;
  double seconds_before_ = 0;  // duration of the resumed run
  StepReport report_;          // since the last line of metrics
  ResourceMonitor resources_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point began_ = start_, logged_at_ = start_, saved_at_ = start_;
  int64_t saved_step_ = 0;
  bool finished_ = false;
};

}  // namespace onnxtrain
