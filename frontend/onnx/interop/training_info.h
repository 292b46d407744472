// What the training_info of a model file says: the loss and the update rule of its algorithm.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct TrainingInfo {
  // The loss as a model of its own: outputs of the trained model and labels → loss_sum and weight, whose quotient is
  // the loss of the algorithm; "" where the trained model computes it (`output`).
  std::string loss;
  std::string output;        // an output of the trained model that is the loss
  std::string rule;          // the update rule as a model of its own: weight, gradient, lr, step, states → NAME_new
  std::string optimizer;     // its operator: "Adam"
  std::optional<double> lr;  // where it is a constant
  std::string problem;       // why neither is known; "": they are
};

// Returns what the algorithm computes, which must have nodes of ai.onnx.preview.training: Gradient, and one of Adam,
// Adagrad and Momentum. nullopt for models without training_info, which costs no parsing. Reads the file again, and
// fails where that fails.
absl::StatusOr<std::optional<TrainingInfo>> ReadTrainingInfo(const OnnxModel& model);

// Writes a training step into the training_info of a model.

// Returns the inference model with the training step as its algorithm. Both are bytes of SerializeGraph, of one model
// and batch. Weights are initializers of the model, other state initializers of the algorithm; inputs of the step that
// the model has, too, are the model's, the others (labels) the algorithm's. An output NAME_new of the step is bound to
// the initializer NAME. `metadata` is a key and its value in the metadata of the model; an empty value adds nothing.
absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata);

}  // namespace onnxtrain
