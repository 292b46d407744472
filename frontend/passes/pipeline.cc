#include "frontend/passes/pipeline.h"

#include <memory>

#include "frontend/base/status.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/recognize.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain {

namespace {

// All rounds share one host budget.
std::vector<Pass> CleanUpPasses() {
  const auto budget = std::make_shared<HostBudget>();
  return {
      {"fold_constants", [budget](const Graph& g) { return FoldConstants(g, kMaxFoldedBytes, budget.get()); },
       [](const Graph& g) { return HasFoldableNodes(g); }},
      {"simplify", Simplify},
      {"cse", Cse, HasEqualNodes},
      DcePass(),
  };
}

}  // namespace

// Runs `first` and, if it changes the graph, the clean-up passes. Requires a graph that is already clean.
static absl::StatusOr<Graph> RunBeforeCleanUp(Pass first, Graph graph, const PassObserver& observer) {
  std::vector<Pass> passes = CleanUpPasses();
  const size_t clean = passes.size();
  passes.insert(passes.begin(), std::move(first));
  return RunToFixedPoint(std::move(graph), passes, 10, observer, clean);
}

static const Pass kCancelTransposes = {"cancel_transposes", CancelTransposes, AnyNodeOf("Transpose")};
static const Pass kGroupProducts = {"group_products", GroupProducts, AnyNodeOf("MatMul")};
static const Pass kRecognize = {"recognize", [](const Graph& g) { return Recognize(g); }};

absl::StatusOr<Graph> CleanUp(Graph graph, const PassObserver& observer) {
  ASSIGN_OR_RETURN(graph, RunToFixedPoint(std::move(graph), CleanUpPasses(), 10, observer));
  return RunBeforeCleanUp(kCancelTransposes, std::move(graph), observer);
}

absl::StatusOr<Graph> Canonicalize(Graph graph, const PassObserver& observer) {
  ASSIGN_OR_RETURN(graph, RunToFixedPoint(std::move(graph), CleanUpPasses(), 10, observer));
  // Patterns have the exported layout, so Recognize runs before transposes move.
  ASSIGN_OR_RETURN(graph, RunBeforeCleanUp(kRecognize, std::move(graph), observer));
  ASSIGN_OR_RETURN(graph, RunBeforeCleanUp(kGroupProducts, std::move(graph), observer));
  return RunBeforeCleanUp(kCancelTransposes, std::move(graph), observer);
}

}  // namespace onnxtrain
