// Writes a training step into the training_info of a model.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"

namespace onnxtrain {

// Returns the inference model with the training step as its algorithm. Both are bytes of SerializeGraph, of one model
// and batch. Weights are initializers of the model, other state initializers of the algorithm; inputs of the step that
// the model has, too, are the model's, the others (labels) the algorithm's. An output NAME_new of the step is bound to
// the initializer NAME. `metadata` is a key and its value in the metadata of the model; an empty value adds nothing.
absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata);

// An update as one node of ai.onnx.preview.training over all trained weights, with one state of each.
struct PreviewUpdate {
  std::string op;  // Adagrad or Momentum
  Attrs attributes;
  double rate = 0;
  std::vector<std::string> weights;
};

// The same with nodes of ai.onnx.preview.training: the loss of outputs of the model, Gradient, and the update.
// `gradients` are bytes of SerializeGraph of loss and outputs. nullopt where the loss reads other values of the model.
absl::StatusOr<std::optional<std::string>> AddPreviewTraining(const std::string& inference,
                                                              const std::string& gradients, const PreviewUpdate& update,
                                                              const std::pair<std::string, std::string>& metadata);

}  // namespace onnxtrain
