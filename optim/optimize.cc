#include "optim/optimize.h"

#include "frontend/passes/pipeline.h"

namespace onnxtrain {

absl::StatusOr<Graph> OptimizeForward(Graph graph) { return Canonicalize(std::move(graph)); }

absl::StatusOr<Graph> OptimizeProgram(Graph graph) { return CleanUp(std::move(graph)); }

}  // namespace onnxtrain
