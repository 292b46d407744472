// Passes and the driver that runs and verifies them. No pass verifies its own result.
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
  // Returns false for graphs that the pass would leave as they are: the driver then saves the copy. Null: true.
  std::function<bool(const Graph&)> may_change = nullptr;
};

// Makes a `may_change` that asks for a node with the property.
std::function<bool(const Graph&)> AnyNode(std::function<bool(const Graph&, const Node&)> has);
// The same for nodes of one operator.
std::function<bool(const Graph&)> AnyNodeOf(std::string_view op);

// Report on one run of one pass.
struct PassReport {
  std::string pass;
  bool changed = false;
  size_t nodes_before = 0, nodes_after = 0;
  double seconds = 0;
};

// Called after every pass; print.h prints the graph as text.
using PassObserver = std::function<void(const PassReport&, const Graph&)>;

// Turns verification on or off for the whole process: on by default in debug builds, off in release builds, where tests
// and `--verify-passes` turn it on. Call it before the first pass; its cost is in README.md.
void SetVerifyPasses(bool verify);

// Runs the passes in order and verifies the result of each. Errors name the pass.
absl::StatusOr<Graph> RunPasses(Graph graph, std::span<const Pass> passes, const PassObserver& observer = nullptr);

// Runs a rewrite that returns more than one graph (Hoist) or appends to one (Differentiate), and verifies its results.
// Returns errors of the rewrite as they are.
absl::Status RunRewrite(std::string_view pass, const std::function<absl::Status()>& rewrite,
                        std::initializer_list<const Graph*> results);

// Runs the passes in turn until each of them has left the graph as it is, at most `rounds` times each. The last `clean`
// passes are known to leave the given graph as it is.
absl::StatusOr<Graph> RunToFixedPoint(Graph graph, std::span<const Pass> passes, int rounds = 10,
                                      const PassObserver& observer = nullptr, size_t clean = 0);

}  // namespace onnxtrain
