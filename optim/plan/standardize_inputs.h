// Standardizes inputs of numbers: zero mean and unit variance over the training samples.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "optim/plan/open_data.h"

namespace onnxtrain {

// Fits the statistics that `standardize` asks for; otherwise uses those of the model's training.
absl::Status SetStandardization(const TrainConfig& config, const std::optional<Preprocess>& before,
                                const DataRequest& request, OpenedData* data);

}  // namespace onnxtrain
