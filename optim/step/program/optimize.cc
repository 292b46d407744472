#include "optim/step/program/optimize.h"

#include "frontend/base/status.h"
#include "frontend/passes/chunk_cross_entropy.h"
#include "frontend/passes/mixed_precision.h"
#include "frontend/passes/order_collectives.h"
#include "frontend/passes/pipeline.h"

namespace onnxtrain {

absl::StatusOr<Graph> OptimizeForward(Graph graph) { return Canonicalize(std::move(graph)); }

absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute) {
  ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph)));
  if (HasCollectives(graph)) {
    const Pass order = {"order_collectives", OrderCollectives};
    ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), {&order, 1}));
  }
  if (HasLargeCrossEntropy(graph)) {
    const Pass chunk = {"chunk_cross_entropy", [](const Graph& g) { return ChunkCrossEntropy(g); }};
    ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), {&chunk, 1}));
    ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph)));
  }
  if (compute == DType::kFloat32) return graph;
  const Pass mixed_precision = {"mixed_precision", [&](const Graph& g) { return MixedPrecision(g, compute); }};
  ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), {&mixed_precision, 1}));
  return CleanUp(std::move(graph));
}

}  // namespace onnxtrain
