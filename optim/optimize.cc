#include "optim/optimize.h"

#include "frontend/base/status.h"
#include "frontend/passes/mixed_precision.h"
#include "frontend/passes/pipeline.h"

namespace onnxtrain {

absl::StatusOr<Graph> OptimizeForward(Graph graph) { return Canonicalize(std::move(graph)); }

absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute) {
  ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph)));
  if (compute == DType::kFloat32) return graph;
  ASSIGN_OR_RETURN(graph, MixedPrecision(graph, compute));
  return CleanUp(std::move(graph));
}

}  // namespace onnxtrain
