// Writes a training step in operators of ai.onnx.preview.training into the training_info of a model.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// An update as one node of ai.onnx.preview.training over all trained weights, with one state per weight.
struct PreviewUpdate {
  std::string op;  // Adagrad or Momentum
  Attrs attributes;
  double rate = 0;
  std::vector<std::string> weights;
};

// Returns the inference model with a training algorithm, like AddTrainingInfo (training_info.h), of three parts: the
// loss of outputs of the model, Gradient, the update. `gradients` is the result of SerializeGraph for loss and outputs.
// Returns nullopt if the loss reads values of the model that are not outputs.
absl::StatusOr<std::optional<std::string>> AddPreviewTraining(const std::string& inference,
                                                              const std::string& gradients, const PreviewUpdate& update,
                                                              const std::pair<std::string, std::string>& metadata);

}  // namespace onnxtrain
