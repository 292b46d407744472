// The driver that runs passes and verifies their results, so that no pass verifies its own.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct Pass {
  std::string name;
  std::function<absl::StatusOr<Graph>(const Graph&)> run;
  // Returns false if the pass would not change the graph, in which case the driver does not run it. Null: always true.
  std::function<bool(const Graph&)> may_change = nullptr;
};

// Returns a `may_change` that is true for graphs with a node for which `has` is true.
std::function<bool(const Graph&)> AnyNode(std::function<bool(const Graph&, const Node&)> has);
// Returns a `may_change` that is true for graphs with this operator.
std::function<bool(const Graph&)> AnyNodeOf(std::string_view op);

struct PassReport {
  std::string pass;
  bool changed = false;
  size_t nodes_before = 0, nodes_after = 0;
  double seconds = 0;
};

// Called after every pass with the resulting graph.
using PassObserver = std::function<void(const PassReport&, const Graph&)>;

// Turns verification on or off for the whole process. Must be called before the first pass. The default is on in debug
// builds and off in release builds, where tests and `--verify-passes` turn it on. README.md states the cost.
void SetVerifyPasses(bool verify);

// Runs the passes in order and verifies the result of each. Errors name the pass.
absl::StatusOr<Graph> RunPasses(Graph graph, std::span<const Pass> passes, const PassObserver& observer = nullptr);

// Runs a rewrite that is not a Pass, because it returns more than one graph (Hoist) or appends to one (Differentiate),
// and verifies its results. Returns errors of the rewrite unchanged.
absl::Status RunRewrite(std::string_view pass, const std::function<absl::Status()>& rewrite,
                        std::initializer_list<const Graph*> results);

// Runs the passes in turn until none of them changes the graph, at most `rounds` times each. The caller knows that the
// last `clean` passes do not change the given graph.
absl::StatusOr<Graph> RunToFixedPoint(Graph graph, std::span<const Pass> passes, int rounds = 10,
                                      const PassObserver& observer = nullptr, size_t clean = 0);

}  // namespace onnxtrain
