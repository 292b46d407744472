// Passes and the driver that runs them. The driver alone verifies: a pass need not, and cannot forget to.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct Pass {
  std::string name;
  std::function<absl::StatusOr<Graph>(const Graph&)> run;
};

// What one run of one pass did.
struct PassReport {
  std::string pass;
  bool changed = false;
  size_t nodes_before = 0, nodes_after = 0;
  double seconds = 0;
};

// Called after every pass that was run; print.h gives the graph as text.
using PassObserver = std::function<void(const PassReport&, const Graph&)>;

// Runs the passes in order. Errors, and invariants that a pass broke, name the pass: "pass cse: [Add 'x'] …".
absl::StatusOr<Graph> RunPasses(Graph graph, std::span<const Pass> passes, const PassObserver& observer = nullptr);

// The same, again and again until a round changes nothing, at most `rounds` times.
absl::StatusOr<Graph> RunToFixedPoint(Graph graph, std::span<const Pass> passes, int rounds = 10,
                                      const PassObserver& observer = nullptr);

}  // namespace onnxtrain
