// The batch of runs without data.
#pragma once

#include <cstdint>

#include "frontend/onnx/import.h"
#include "optim/config.h"

namespace onnxtrain {

// The global batch of a run that only shows that the model trains: GlobalBatchSize, and where nobody chose it, halved
// while a step would take long, but not below 2, which statistics of the batch need.
int64_t SyntheticBatchSize(const TrainConfig& config, const OnnxModel& model, const ImportOptions& import);

}  // namespace onnxtrain
