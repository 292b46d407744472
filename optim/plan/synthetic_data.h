// Generates synthetic samples that fit the inputs and the loss of a model, for runs without data.
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

// Returns the global batch of a run without data, which only shows that the model trains: GlobalBatchSize. If nobody
// chose the size, halves it while a step would take long, but not below 2, which batch statistics need. `options` are
// those of the run's import.
int64_t SyntheticBatchSize(const TrainConfig& config, PreparedModels& models, const PrepareOptions& options);

// Returns the end of an error message for a model imported with assumed extents: how to specify the right ones. Returns
// "" if no dimension is free.
std::string DescribeFreeDims(const OnnxModel& model, const std::map<std::string, int64_t>& dims);

// Makes `size` samples, a function of the seed, with the shapes of `import`. Integer inputs that index a table are in
// range; masks are ones. `import` (MakeImportOptions) and `loss` are those of the run. Labels fit the outputs of
// micro-batches of `micro_batch`, whose shape may depend on it (scores of samples against each other).
absl::StatusOr<BoundData> MakeSyntheticData(PreparedModels& models, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, int64_t micro_batch, uint64_t seed);

}  // namespace onnxtrain
