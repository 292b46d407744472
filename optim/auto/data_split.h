// Which samples of the training data are held out for evaluation.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/split.h"
#include "optim/config.h"

namespace onnxtrain {

struct HeldOut {
  SplitRows rows;
  std::string text;  // which samples evaluate, for people
};

// The column that eval_split names; "": it is a fraction or not set.
std::string SplitColumn(const TrainConfig& config);

// Splits the samples of config.data, opened with `options`, as eval_split says.
absl::StatusOr<HeldOut> HoldOutSamples(const TrainConfig& config, const Dataset& data, const DatasetOptions& options);

}  // namespace onnxtrain
