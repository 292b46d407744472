// Shows the progress of a run, and warns of likely mistakes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "optim/loop/trainer.h"
#include "optim/plan/training_run.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {

// Receives the messages and progress of a run. Called on the training thread; texts name fields in backquotes.
class RunDisplay {
 public:
  virtual ~RunDisplay() = default;
  virtual void ShowProgress(const TrainEvent& event) {}
  virtual void EndProgress() {}  // no event follows
  virtual void ShowWarning(const std::string& text) {}
  virtual void ShowInfo(const std::string& text) {}
  virtual void ShowProfile(const Trace& trace) {}
};

// Passes each warning once to a display, and keeps them for summary.json.
class RunWarnings {
 public:
  // Both must outlive the object.
  RunWarnings(const TrainingRun& run, RunDisplay* display) : run_(run), display_(*display) {}

  void Add(const std::string& text);
  const std::vector<std::string>& texts() const { return texts_; }

  // Warns of outliers, of gradients that are 0 and of a small loss scale.
  void CheckEvent(const TrainEvent& event);
  // Warns if a trained model begins at the accuracy of chance.
  void CheckInitialEvaluation(const EvalMetrics& before);
  // Warns if training has made a trained model worse.
  void CheckResult(const TrainResult& result);

 private:
  void CheckOutliers(const std::vector<Outlier>& outliers);
  void CheckGradient(const TrainEvent& event);

  const TrainingRun& run_;
  RunDisplay& display_;
  std::vector<std::string> texts_;
  std::map<Outlier::Of, int64_t> outliers_;  // so far
  bool warned_of_zero_gradient_ = false;
};

}  // namespace onnxtrain
