// The folder of a run whose updates a program makes: metrics, checkpoints, model and summary, as of a run of the loop.
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
  // Begins the run, or goes on with the one of `start`, whose session it restores. `run` must outlive it.
  static absl::StatusOr<std::unique_ptr<CallerRun>> Begin(RunStart start, std::unique_ptr<OutputFolder> folder,
                                                          TrainingRun* run);

  // Updates so far, with those of the run that it goes on with.
  int64_t steps() const { return at_.result.steps; }

  // Around each update: EndUpdate counts its samples, and writes the metrics and the checkpoint that are due.
  void BeginUpdate() { began_ = std::chrono::steady_clock::now(); }
  absl::Status EndUpdate(int64_t samples);
  // What Session::Report has returned to somebody else: metrics are those of all updates since the last line.
  void Add(const StepReport& report);
  // An evaluation of the weights as they are.
  void RecordEvaluation(const EvalMetrics& metrics);

  // Fails once the run is finished.
  absl::Status CheckOpen() const;
  // Writes the last checkpoint, the model and the summary, of which it returns the JSON.
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
  double seconds_before_ = 0;  // of the run that this one goes on with
  StepReport report_;          // since the last line of metrics
  ResourceMonitor resources_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point began_ = start_, logged_at_ = start_, saved_at_ = start_;
  int64_t saved_step_ = 0;
  bool finished_ = false;
};

}  // namespace onnxtrain
