// onnxtrain plan --pipeline: the stages of a model.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/synthetic_setup.h"

namespace onnxtrain::cli {

// Returns the page, or JSON where config.json asks for it.
absl::StatusOr<std::string> DescribePipeline(const TrainConfig& config, const SyntheticSetup& setup);

}  // namespace onnxtrain::cli
