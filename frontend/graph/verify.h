// Verifies the structural invariants of a graph. ops/check.h checks types against the operator rows.
#pragma once

#include "absl/status/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Checks ids, topological order, one producer per value, shapes, bound outputs, and that `into` has the output's type.
absl::Status VerifyStructure(const Graph& graph);

}  // namespace onnxtrain
