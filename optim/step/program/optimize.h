// The passes before a backend legalizes a graph.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Folds and simplifies an imported forward graph and recognizes composites.
absl::StatusOr<Graph> OptimizeForward(Graph graph);

// Simplifies a program's graph, forward and backward nodes together, and inserts casts so that products compute in
// `compute`: f32 (no casts), bf16 or f16.
absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute);

}  // namespace onnxtrain
