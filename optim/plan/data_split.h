// Splits samples into training and held-out evaluation samples.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/split.h"
#include "optim/config/config.h"

namespace onnxtrain {

struct HeldOut {
  SplitRows rows;
  std::string text;  // describes the evaluation samples to the user
};

// Returns `config` with `data` set to the training file of a data folder (FindSplitFiles) and, if neither `eval_data`
// nor `eval_split` is set, `eval_data` set to its evaluation file.
TrainConfig WithSplitFiles(TrainConfig config);

// Returns the file to evaluate (`want_label`) or to predict of a folder with split files; else config.data.
std::string FindEvalFile(const TrainConfig& config, bool want_label);

// Returns the column that eval_split names, or "" if eval_split is a fraction or not set.
std::string SplitColumn(const TrainConfig& config);

// Splits the samples of config.data, opened with `options`, as eval_split says.
absl::StatusOr<HeldOut> HoldOutSamples(const TrainConfig& config, const Dataset& data, const DatasetOptions& options);

}  // namespace onnxtrain
