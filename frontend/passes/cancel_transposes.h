// The transposes that exporters of channels-last frameworks put around every convolution.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Moves transposes that only take the channel axis from the front to the back, or back to the front, behind elementwise
// operators, Softmax, Concat, Pad, Slice and reductions, where two that undo each other meet and vanish. Forward and
// backward nodes alike. The graph stays as it was unless fewer elements are transposed afterwards.
absl::StatusOr<Graph> CancelTransposes(const Graph& graph);

}  // namespace onnxtrain
