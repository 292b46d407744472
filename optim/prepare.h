// From a model file to a forward graph that training can start from: import, recognize, choose loss and weights.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/loss.h"
#include "optim/trainable.h"

namespace onnxtrain {

struct PrepareOptions {
  ImportOptions import;   // batch and training are overridden; an extent of -1 in input_shapes is the batch
  LossSpec loss;
  LabelInfo labels;
  TrainableSpec trainable;
};

struct PreparedModel {
  ImportedModel model;
  LossChoice loss;
  std::vector<WeightDecision> weights;
};

// Simplified and with composites recognized; without loss and choice of weights.
absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training);

// As the file has it, node by node. Names of inputs, outputs and weights that begin with "$" are refused: so begin those of
// what a step adds to the graph.
absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training);

// With weights chosen, without loss. A BatchNorm whose scale is frozen comes in inference mode.
absl::StatusOr<PreparedModel> PrepareWeights(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training);

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training);

}  // namespace onnxtrain
