// Starts a run from the weights of a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns the model with the weights and running statistics of a checkpoint (a folder of checkpoints, or of a run:
// its newest one) in place of its initializers of the same name and shape. Says in *lines how many they are, and which
// are left out. Fails where none fits.
absl::StatusOr<std::shared_ptr<const OnnxModel>> InitFromCheckpoint(const std::shared_ptr<const OnnxModel>& model,
                                                                    const std::string& path,
                                                                    std::vector<std::string>* lines);

}  // namespace onnxtrain
