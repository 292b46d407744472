#include "frontend/passes/pipeline.h"

#include "frontend/base/status.h"
#include "frontend/passes/cse.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/fold_constants.h"
#include "frontend/passes/recognize.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain {

namespace {

std::vector<Pass> CleanUpPasses() {
  return {
      {"fold_constants", [](const Graph& g) { return FoldConstants(g); }},
      {"simplify", Simplify},
      {"cse", Cse},
      {"dce", [](const Graph& g) -> absl::StatusOr<Graph> { return Dce(g); }},
  };
}

}  // namespace

absl::StatusOr<Graph> CleanUp(Graph graph, const PassObserver& observer) {
  return RunToFixedPoint(std::move(graph), CleanUpPasses(), 10, observer);
}

absl::StatusOr<Graph> Canonicalize(Graph graph, const PassObserver& observer) {
  ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph), observer));
  std::vector<Pass> passes = CleanUpPasses();
  passes.insert(passes.begin(), {"recognize", [](const Graph& g) { return Recognize(g); }});
  return RunToFixedPoint(std::move(graph), passes, 10, observer);
}

}  // namespace onnxtrain
