// onnxtrain plan --pipeline and --tensor: the part of a model that each rank has.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/training_run.h"

namespace onnxtrain::cli {

// Return the page, or JSON where config.json asks for it.
absl::StatusOr<std::string> DescribePipeline(const TrainConfig& config, const TrainingRun& setup);
absl::StatusOr<std::string> DescribeTensor(const TrainConfig& config, const TrainingRun& setup);

}  // namespace onnxtrain::cli
