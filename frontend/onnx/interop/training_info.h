// Reads the loss and the update rule of the algorithm in the training_info of a model file, and writes a training step
// there, in plain operators or in those of ai.onnx.preview.training.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct TrainingInfo {
  // The loss as a separate model, from outputs of the trained model and labels to loss_sum and weight, whose quotient
  // is the loss of the algorithm; "" if the trained model computes it (`output`).
  std::string loss;
  std::string output;        // an output of the trained model that is the loss
  std::string rule;          // the update rule as a separate model, from weight, gradient, lr, step and states to
                             // NAME_new
  std::string optimizer;     // operator of the update rule: "Adam"
  std::optional<double> lr;  // if it is constant
  std::string problem;       // reason why loss and rule are unknown; "" if they are known
};

// Reads the algorithm, which must have nodes of ai.onnx.preview.training: Gradient, and one of Adam, Adagrad and
// Momentum. Returns nullopt for models without training_info, without parsing them. Reads the file again and returns
// its errors.
absl::StatusOr<std::optional<TrainingInfo>> ReadTrainingInfo(const OnnxModel& model);

// Returns the inference model with the training step as its algorithm. Both are results of SerializeGraph, for the same
// model and batch. Weights become initializers of the model, other state initializers of the algorithm. Inputs of the
// step that are also inputs of the model stay there; the others (labels) become inputs of the algorithm. Binds an
// output NAME_new of the step to the initializer NAME. `metadata` is a key and value to add to the metadata of the
// model; an empty value adds nothing.
absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata);

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
