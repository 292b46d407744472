// Writes a training step into the training_info of a model.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Returns the inference model with the training step as its algorithm. Both are bytes of SerializeGraph, of one model
// and batch. Weights are initializers of the model, other state initializers of the algorithm; inputs of the step that
// the model has, too, are the model's, the others (labels) the algorithm's. An output NAME_new of the step is bound to
// the initializer NAME. `metadata` is a key and its value in the metadata of the model; an empty value adds nothing.
absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata);

}  // namespace onnxtrain
