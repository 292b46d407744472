#include "frontend/passes/pass.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

#ifdef NDEBUG
constexpr bool kVerifyByDefault = false;
#else
constexpr bool kVerifyByDefault = true;
#endif

std::atomic<bool> verify_passes = kVerifyByDefault;

absl::Status VerifyResult(std::string_view pass, const Graph& result) {
  if (!verify_passes) return absl::OkStatus();
  return Annotate(Verify(result), StrCat("pass ", pass, ": "));
}

// Runs and verifies one pass. If `changed` is null, compares the graphs only for the observer.
absl::StatusOr<Graph> RunOne(Graph graph, const Pass& pass, const PassObserver& observer, bool* changed) {
  RETURN_IF_ERROR(CheckCancelled());
  const size_t nodes = graph.nodes().size();
  if (pass.may_change && !pass.may_change(graph)) {
    if (changed != nullptr) *changed = false;
    if (observer) observer({pass.name, false, nodes, nodes, 0}, graph);
    return graph;
  }
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<Graph> result = pass.run(graph);
  if (!result.ok()) return Annotate(result.status(), StrCat("pass ", pass.name, ": "));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RETURN_IF_ERROR(VerifyResult(pass.name, *result));
  const bool differs = (changed != nullptr || observer) && !(*result == graph);
  if (changed != nullptr) *changed = differs;
  if (observer) observer({pass.name, differs, nodes, result->nodes().size(), seconds}, *result);
  return result;
}

}  // namespace

void SetVerifyPasses(bool verify) { verify_passes = verify; }

absl::Status RunRewrite(std::string_view pass, const std::function<absl::Status()>& rewrite,
                        std::initializer_list<const Graph*> results) {
  RETURN_IF_ERROR(CheckCancelled());
  RETURN_IF_ERROR(rewrite());
  for (const Graph* result : results) RETURN_IF_ERROR(VerifyResult(pass, *result));
  return absl::OkStatus();
}

std::function<bool(const Graph&)> AnyNode(std::function<bool(const Graph&, const Node&)> has) {
  return [has = std::move(has)](const Graph& graph) {
    return std::ranges::any_of(graph.nodes(), [&](const Node& node) { return has(graph, node); });
  };
}

std::function<bool(const Graph&)> AnyNodeOf(std::string_view op) {
  return AnyNode([op = std::string(op)](const Graph&, const Node& node) { return node.op == op; });
}

absl::StatusOr<Graph> RunPasses(Graph graph, std::span<const Pass> passes, const PassObserver& observer) {
  for (const Pass& pass : passes) {
    ASSIGN_OR_RETURN(graph, RunOne(std::move(graph), pass, observer, nullptr));
  }
  return graph;
}

absl::StatusOr<Graph> RunToFixedPoint(Graph graph, std::span<const Pass> passes, int rounds,
                                      const PassObserver& observer, size_t clean) {
  const size_t runs = passes.size() * rounds;
  for (size_t i = 0, unchanged = clean; i < runs && unchanged < passes.size(); ++i) {
    bool changed = false;
    ASSIGN_OR_RETURN(graph, RunOne(std::move(graph), passes[i % passes.size()], observer, &changed));
    unchanged = changed ? 0 : unchanged + 1;
  }
  return graph;
}

}  // namespace onnxtrain
