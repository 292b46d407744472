// A session on synthetic data, without a training run: what `bench` times and `plan` plans.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/plan/precision.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/training_run.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct SyntheticSetup {
  std::shared_ptr<PreparedModels> models;
  std::vector<std::string> surgery;  // what was done to the model, a line each
  BatchPlan batch;
  SessionOptions options;
  TrainData data;  // one global batch of samples
  std::unique_ptr<Backend> backend;
  int64_t threads = 0;  // of the backend, as TrainConfig::threads
  PrecisionChoice precision;
  int64_t state_bytes = 0;  // of a checkpoint
  SavePlan save;            // of it; kNone: `options` count no save
};

absl::StatusOr<SyntheticSetup> PrepareSynthetic(const TrainConfig& config, const BackendFactory& make_backend);

}  // namespace onnxtrain
