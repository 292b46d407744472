// Looks for likely mistakes in the data of a run. A hint never ends the run.
#pragma once

#include <string>
#include <vector>

#include "optim/plan/training_run.h"

namespace onnxtrain {

// Reads the first samples and returns the hints. Fails if one of the samples cannot be used.
absl::StatusOr<std::vector<std::string>> FindDataHints(const TrainingRun& run, const PreparedModel& prepared);

// Returns a hint if classes were numbered in the order of their names although the model has more classes; else "".
std::string DescribeGuessedClasses(const BoundData& data, const LossChoice& loss);

}  // namespace onnxtrain
