// Opens model and data for eval, predict, grad and compare.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "tools/onnxtrain/commands/command.h"

namespace onnxtrain::cli {

// Calls OpenModelAndData, and prints how the data was bound.
absl::StatusOr<ModelAndData> OpenInputs(const TrainConfig& config, bool eval_split, bool want_label);

// Opens inputs with labels; without --data, makes synthetic samples that fit the model.
absl::StatusOr<ModelAndData> OpenOrMakeUpInputs(const TrainConfig& config);

// Returns --out. Fails if it is missing or names an input; `example` is for the message.
absl::StatusOr<std::string> OutputFile(const TrainConfig& config, const char* example);

// Writes the answers of a language model to prompts in config.data, or the continuations of texts, to the file `out`.
// Returns false if the model is none, if the data holds no texts, or if `loss` asks for its scores.
absl::StatusOr<bool> PredictText(const TrainConfig& config, const std::string& out);

}  // namespace onnxtrain::cli
