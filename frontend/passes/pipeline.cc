#include "frontend/passes/pipeline.h"

#include <memory>

#include "frontend/base/status.h"
#include "frontend/passes/cancel_transposes.h"
#include "frontend/passes/cse.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/fold_constants.h"
#include "frontend/passes/recognize.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain {

namespace {

// The host's budget is for all rounds.
std::vector<Pass> CleanUpPasses() {
  const auto budget = std::make_shared<HostBudget>();
  return {
      {"fold_constants", [budget](const Graph& g) { return FoldConstants(g, kMaxFoldedBytes, budget.get()); }},
      {"simplify", Simplify},
      {"cse", Cse},
      DcePass(),
  };
}

}  // namespace

// Cancels transposes, then repeats the other passes if any were removed. For graphs that are clean.
static absl::StatusOr<Graph> CancelAndCleanUp(Graph graph, const PassObserver& observer) {
  if (!AnyNodeOf("Transpose")(graph)) return graph;
  std::vector<Pass> passes = CleanUpPasses();
  passes.insert(passes.begin(), {"cancel_transposes", CancelTransposes});
  return RunToFixedPoint(std::move(graph), passes, 10, observer);
}

absl::StatusOr<Graph> CleanUp(Graph graph, const PassObserver& observer) {
  ASSIGN_OR_RETURN(graph, RunToFixedPoint(std::move(graph), CleanUpPasses(), 10, observer));
  return CancelAndCleanUp(std::move(graph), observer);
}

absl::StatusOr<Graph> Canonicalize(Graph graph, const PassObserver& observer) {
  ASSIGN_OR_RETURN(graph, RunToFixedPoint(std::move(graph), CleanUpPasses(), 10, observer));
  std::vector<Pass> passes = CleanUpPasses();
  passes.insert(passes.begin(), {"recognize", [](const Graph& g) { return Recognize(g); }});
  // Recognizes patterns in the exported layout, before transposes move.
  ASSIGN_OR_RETURN(graph, RunToFixedPoint(std::move(graph), passes, 10, observer));
  return CancelAndCleanUp(std::move(graph), observer);
}

}  // namespace onnxtrain
