// Evaluates the model file that a run has written.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/plan/training_run.h"

namespace onnxtrain {

// Returns the loss of the file on the evaluation data of the run, in a session of its own. The run must have some.
absl::StatusOr<double> EvaluateWrittenModel(const TrainingRun& run, const std::string& path);

}  // namespace onnxtrain
