// Which passes run when.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Of an imported forward graph: folded, simplified, composites recognized.
absl::StatusOr<Graph> OptimizeForward(Graph graph);

// Of a program's graph, forward and backward nodes together, before the backend legalizes it. Products compute in `compute`:
// f32 (everything does), bf16 or f16.
absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute);

}  // namespace onnxtrain
