// A Relu behind a convolution or a batch normalization is computed with it, and so is its gradient; between a normalization and
// the Relu, a residual may be added.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Of a graph that MoveChannelsLast made. Where nobody else reads what the Relu or the sum does, that is never written; backwards
// the normalization knows what was cut off from its own input, if nothing was added. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseRelu(const Graph& graph);

}  // namespace onnxtrain::cpu
