// Which passes run when.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Of an imported forward graph: folded, simplified, composites recognized.
absl::StatusOr<Graph> OptimizeForward(Graph graph);

// Of a program's graph, forward and backward nodes together, before the backend legalizes it.
absl::StatusOr<Graph> OptimizeProgram(Graph graph);

}  // namespace onnxtrain
