// The gradient graph of a model: forward pass, loss and gradients as one graph for other runtimes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "optim/prepare.h"

namespace onnxtrain {

// Outputs "loss", the gradient of every trained weight (WEIGHT_grad) and the model's outputs. `model` must have been
// prepared for training and for this batch.
absl::StatusOr<Graph> BuildGradientGraph(const PreparedModel& model, const LossSpec& loss, int64_t batch);

}  // namespace onnxtrain
