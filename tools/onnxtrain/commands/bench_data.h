// onnxtrain bench --data: how fast the samples of a file become batches.
#pragma once

#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain::cli {

absl::StatusOr<int> BenchData(const TrainConfig& config);

}  // namespace onnxtrain::cli
