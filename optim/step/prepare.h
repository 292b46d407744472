// From a model file to a forward graph that training can start from: import, recognize, choose loss and weights.
// Whatever asks more than once goes through PreparedModels (prepared_models.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/step/loss.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

struct PrepareOptions {
  ImportOptions import;  // batch and training are overridden; extents of -1 in input_shapes are the batch
  LossSpec loss;
  LabelInfo labels;
  TrainableSpec trainable;
};

struct PreparedModel {
  ImportedModel model;
  LossChoice loss;
  std::vector<WeightDecision> weights;
};

// Imports, simplifies and recognizes composites; chooses neither loss nor weights.
absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                            bool training);

// Imports node by node, without optimization. Fails on inputs, outputs and weights whose names begin with "$": such
// names are reserved for what training adds to a graph.
absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                              bool training);

// Chooses the trained weights of what `import` returns for these options. Imports again, with the scales named in
// ImportOptions::frozen_scales, where a BatchNorm's scale is frozen: such a node stays in inference mode.
using ImportForwardFn = std::function<absl::StatusOr<ImportedModel>(const PrepareOptions& options)>;
absl::StatusOr<PreparedModel> ChooseWeights(const PrepareOptions& options, const ImportForwardFn& import,
                                            FixedTables* tables);

// Imports and chooses weights, without loss.
absl::StatusOr<PreparedModel> PrepareWeights(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                             bool training);

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                      bool training);

}  // namespace onnxtrain
