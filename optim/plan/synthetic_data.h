// Makes up samples that fit the inputs and the loss of a model, for runs without data.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/precision.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/training_run.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The batch of runs without data.

// The global batch of a run that only shows that the model trains: GlobalBatchSize, and where nobody chose it, halved
// while a step would take long, but not below 2, which statistics of the batch need. `options`: as the run will import
// the model.
int64_t SyntheticBatchSize(const TrainConfig& config, PreparedModels& models, const PrepareOptions& options);

// Returns what the error of a model that was imported with such shapes ends in: how to specify the right ones. "" where
// no dimension is free.
std::string DescribeFreeDims(const OnnxModel& model, const std::map<std::string, int64_t>& dims);

// `size` samples, a function of the seed, shaped as above. Integer inputs that index a table stay inside it, masks are
// ones. `import` (MakeImportOptions) and `loss` are those of the run; labels fit the outputs of micro-batches of
// `micro_batch`, which may depend on it (scores of samples against each other).
absl::StatusOr<BoundData> MakeSyntheticData(PreparedModels& models, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, int64_t micro_batch, uint64_t seed);

}  // namespace onnxtrain
