// Decides whether the rows of a language model may hold several samples, and proves it on the model.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/loop/evaluate.h"
#include "optim/plan/language_data.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Returns the inputs of the model by their names and shapes, as BindTokens assigns them.
PackedInputs FindPackedInputs(const OnnxModel& model);

// Fails with the reason if the samples of a row of `length` tokens cannot be kept apart.
absl::Status CheckPackable(const TrainConfig& config, const OnnxModel& model, const LanguageModel& language,
                           int64_t length);

// Runs the model on rows of random tokens. Fails if the outputs of a sample change by a bit with the tokens of another
// sample of its row, or if those of the second sample of a row differ from the same sample alone by more than rounding
// in the type `compute`, relative to the largest output. `ids`: the input of token ids.
absl::Status CheckSeparation(Session& session, const TrainData& data, const std::string& ids, DType compute);

}  // namespace onnxtrain
