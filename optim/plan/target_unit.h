// Trains a regression on standardized targets, and restores the original unit in the exported model.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/onnx/edit/output_layer.h"
#include "optim/loop/trainer.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

struct ScaledTargets {
  OutputLayer layer;
  TargetUnit unit;
};

// Fits the targets of `train` and standardizes them in `train` and, if it has samples, in `eval`. Fails with a reason
// if the unit cannot be folded into the last layer.
absl::StatusOr<ScaledTargets> ScaleTargets(const OnnxModel& model, const PreparedModel& prepared, TrainData* train,
                                           TrainData* eval);

}  // namespace onnxtrain
