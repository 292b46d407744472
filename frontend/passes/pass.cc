#include "frontend/passes/pass.h"

#include <chrono>

#include "frontend/base/status.h"
#include "frontend/ops/check.h"

namespace onnxtrain {
namespace {

absl::StatusOr<Graph> RunOne(Graph graph, const Pass& pass, const PassObserver& observer, bool* changed) {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<Graph> result = pass.run(graph);
  const std::string who = StrCat("pass ", pass.name, ": ");
  if (!result.ok()) return Annotate(result.status(), who);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RETURN_IF_ERROR(Annotate(Verify(*result), who));
  const bool differs = !(*result == graph);
  *changed |= differs;
  if (observer) observer({pass.name, differs, graph.nodes().size(), result->nodes().size(), seconds}, *result);
  return result;
}

absl::StatusOr<Graph> RunRound(Graph graph, std::span<const Pass> passes, const PassObserver& observer, bool* changed) {
  for (const Pass& pass : passes) {
    ASSIGN_OR_RETURN(graph, RunOne(std::move(graph), pass, observer, changed));
  }
  return graph;
}

}  // namespace

absl::StatusOr<Graph> RunPasses(Graph graph, std::span<const Pass> passes, const PassObserver& observer) {
  bool changed = false;
  return RunRound(std::move(graph), passes, observer, &changed);
}

absl::StatusOr<Graph> RunToFixedPoint(Graph graph, std::span<const Pass> passes, int rounds,
                                      const PassObserver& observer) {
  for (bool changed = true; changed && rounds > 0; --rounds) {
    changed = false;
    ASSIGN_OR_RETURN(graph, RunRound(std::move(graph), passes, observer, &changed));
  }
  return graph;
}

}  // namespace onnxtrain
