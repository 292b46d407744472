// Structural invariants of a graph. Types are checked against the operator rows by ops/check.h.
#pragma once

#include "absl/status/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Ids in range, topological order, one producer per value, valid shapes, outputs bound, `into` of equal type.
absl::Status VerifyStructure(const Graph& graph);

}  // namespace onnxtrain
