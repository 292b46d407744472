// From the canonical graph to one that this backend's kernels run.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Fails naming every node that cannot be run.
absl::StatusOr<Graph> LegalizeGraph(const Graph& graph);

}  // namespace onnxtrain::cpu
