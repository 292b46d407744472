// Cancels the transposes that exporters of channels-last frameworks put around convolutions.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Sinks transposes that move the channel axis between front and back below elementwise operators, Softmax, Concat, Pad,
// Slice and reductions, and removes pairs that cancel, among forward and backward nodes. Returns the graph unchanged
// unless the result transposes fewer elements.
absl::StatusOr<Graph> CancelTransposes(const Graph& graph);

}  // namespace onnxtrain
