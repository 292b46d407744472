// The second stage of lowering: fuses the kernels of a legalized graph. Runs last; nothing is taken apart again.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Normalizations first, then elementwise chains of what they leave. The result is the graph that runs.
absl::StatusOr<Graph> FuseGraph(const Graph& legal);

}  // namespace onnxtrain::cpu
