#include "frontend/passes/pass.h"

#include <atomic>
#include <chrono>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/ops/check.h"

namespace onnxtrain {
namespace {

#ifdef NDEBUG
constexpr bool kVerifyByDefault = false;
#else
constexpr bool kVerifyByDefault = true;
#endif

std::atomic<bool> verify_passes = kVerifyByDefault;

// `changed` may be null; then the graphs are compared for the observer only.
absl::StatusOr<Graph> RunOne(Graph graph, const Pass& pass, const PassObserver& observer, bool* changed) {
  RETURN_IF_ERROR(CheckCancelled());
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<Graph> result = pass.run(graph);
  if (!result.ok()) return Annotate(result.status(), StrCat("pass ", pass.name, ": "));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RETURN_IF_ERROR(VerifyResult(pass.name, *result));
  const bool differs = (changed != nullptr || observer) && !(*result == graph);
  if (changed != nullptr) *changed |= differs;
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

void SetVerifyPasses(bool verify) { verify_passes = verify; }

absl::Status VerifyResult(std::string_view pass, const Graph& result) {
  if (!verify_passes) return absl::OkStatus();
  return Annotate(Verify(result), StrCat("pass ", pass, ": "));
}

absl::StatusOr<Graph> RunPasses(Graph graph, std::span<const Pass> passes, const PassObserver& observer) {
  return RunRound(std::move(graph), passes, observer, nullptr);
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
