#include "frontend/passes/pipeline.h"

#include "frontend/base/status.h"
#include "frontend/passes/cse.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/fold_constants.h"
#include "frontend/passes/recognize.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain {

absl::StatusOr<Graph> CleanUp(Graph graph, const PassObserver& observer) {
  static const auto* passes = new std::vector<Pass>{
      {"fold_constants", [](const Graph& g) { return FoldConstants(g); }},
      {"simplify", Simplify},
      {"cse", Cse},
      {"dce", [](const Graph& g) -> absl::StatusOr<Graph> { return Dce(g); }},
  };
  return RunToFixedPoint(std::move(graph), *passes, 10, observer);
}

absl::StatusOr<Graph> Canonicalize(Graph graph, const PassObserver& observer) {
  ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph), observer));
  const Pass recognize[] = {{"recognize", [](const Graph& g) { return Recognize(g); }}};
  ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), recognize, observer));
  return CleanUp(std::move(graph), observer);
}

}  // namespace onnxtrain
