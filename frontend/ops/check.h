// Checks every node of a graph against its row: known operator, arity, attributes, output types.
#pragma once

#include "absl/status/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Checks structure (VerifyStructure) and types. Runs after every pass.
absl::Status Verify(const Graph& graph);

}  // namespace onnxtrain
