// A model with made-up data and no training run: what `bench` times and `plan` plans.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "optim/session.h"
#include "optim/trainer.h"
#include "tools/onnxtrain/precision.h"
#include "tools/onnxtrain/train_plan.h"

namespace onnxtrain::cli {

struct Trial {
  std::shared_ptr<const OnnxModel> model;
  BatchPlan batch;
  SessionOptions options;
  TrainData data;   // one global batch of samples
  std::unique_ptr<Backend> backend;
  PrecisionChoice precision;
};

// From the flags.
absl::StatusOr<Trial> SetUpTrial();

}  // namespace onnxtrain::cli
