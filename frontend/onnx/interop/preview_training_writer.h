// Writes a training step in operators of ai.onnx.preview.training into the training_info of a model.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"

namespace onnxtrain {

// An update as one node of ai.onnx.preview.training over all trained weights, with one state of each.
struct PreviewUpdate {
  std::string op;  // Adagrad or Momentum
  Attrs attributes;
  double rate = 0;
  std::vector<std::string> weights;
};

// As AddTrainingInfo (training_info.h), with three parts: the loss of outputs of the model, Gradient, the
// update. `gradients` are bytes of SerializeGraph of loss and outputs. nullopt where the loss reads other values of the
// model.
absl::StatusOr<std::optional<std::string>> AddPreviewTraining(const std::string& inference,
                                                              const std::string& gradients, const PreviewUpdate& update,
                                                              const std::pair<std::string, std::string>& metadata);

}  // namespace onnxtrain
