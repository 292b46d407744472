// What is probably not meant in the data of a run. Nothing of it ends the run.
#pragma once

#include <string>
#include <vector>

#include "optim/plan/training_run.h"

namespace onnxtrain {

// Reads the first samples. Fails where one of them cannot be used.
absl::StatusOr<std::vector<std::string>> FindDataHints(const TrainingRun& run, const PreparedModel& prepared);

// "" unless classes were numbered by the order of names while the model has more classes than there are names.
std::string DescribeGuessedClasses(const BoundData& data, const LossChoice& loss);

}  // namespace onnxtrain
