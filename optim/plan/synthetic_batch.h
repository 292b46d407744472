// The batch of runs without data.
#pragma once

#include <cstdint>

#include "optim/config/config.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// The global batch of a run that only shows that the model trains: GlobalBatchSize, and where nobody chose it, halved
// while a step would take long, but not below 2, which statistics of the batch need. `options`: as the run will import
// the model.
int64_t SyntheticBatchSize(const TrainConfig& config, PreparedModels& models, const PrepareOptions& options);

}  // namespace onnxtrain
