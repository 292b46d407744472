// Inputs of tokens, [batch, length] of integers: which lengths a model takes.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

bool IsTokenInput(const ModelInput& input);
// Is it a mask of pairs of tokens, [batch, (heads,) length, length], by its name?
bool IsPairMask(const ModelInput& input);

// The length that is tried where the model leaves it free.
inline constexpr int64_t kTrialLength = 16;
inline constexpr int64_t kTrialBatch = 2;

// Imports the model with samples of kTrialLength tokens, where its inputs take them.
absl::StatusOr<ImportedModel> ImportAtTrialLength(const TrainConfig& config, const OnnxModel& model);

// The greatest length of [batch, length] inputs of integers that the model takes: a fixed extent, else the rows of the
// table that it looks positions up in. `exact`: it takes no other. 0: there is no limit that could be found.
struct LengthLimit {
  int64_t length = 0;
  bool exact = false;
};
absl::StatusOr<LengthLimit> FindLengthLimit(const TrainConfig& config, const OnnxModel& model);
// What its declared inputs say; a length of 0: nothing.
absl::StatusOr<LengthLimit> FindDeclaredLength(const TrainConfig& config, const OnnxModel& model);

// The rows of a table that constant indices 0, 1, 2, … (or from an offset on) of `length` select; 0: there is none.
int64_t FindPositionRows(const Graph& graph, int64_t length);

}  // namespace onnxtrain
