// Which samples train and which are held out for evaluation.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/split.h"
#include "optim/config/config.h"

namespace onnxtrain {

struct HeldOut {
  SplitRows rows;
  std::string text;  // which samples evaluate, for people
};

// The configuration with the files that a folder holds for training and evaluation (FindSplitFiles) as `data` and
// `eval_data`, unless this or `eval_split` is set.
TrainConfig WithSplitFiles(TrainConfig config);

// The file of such a folder that is to be evaluated, or predicted without labels; else config.data.
std::string FindEvalFile(const TrainConfig& config, bool want_label);

// The column that eval_split names; "": it is a fraction or not set.
std::string SplitColumn(const TrainConfig& config);

// Splits the samples of config.data, opened with `options`, as eval_split says.
absl::StatusOr<HeldOut> HoldOutSamples(const TrainConfig& config, const Dataset& data, const DatasetOptions& options);

}  // namespace onnxtrain
