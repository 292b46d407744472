// What eval, predict, grad and compare share.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "tools/onnxtrain/commands/command.h"

namespace onnxtrain::cli {

// OpenModelAndData, and prints how the data was bound.
absl::StatusOr<ModelAndData> OpenInputs(const TrainConfig& config, bool eval_split, bool want_label);

// The same with labels, for gradients; without --data synthetic samples that fit the model, as training makes up.
absl::StatusOr<ModelAndData> OpenOrMakeUpInputs(const TrainConfig& config);

// --out, which must be given and must not be an input.
absl::StatusOr<std::string> OutputFile(const TrainConfig& config, const char* example);

}  // namespace onnxtrain::cli
