// Decomposes composites into primitives.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Decomposes every node for which `lacks` holds until none with a decomposition is left. Keeps the others, and dead
// nodes.
absl::StatusOr<Graph> DecomposeNodes(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& lacks);

// Returns the gradient of a row by its decomposition: appends the decomposition over c.inputs and differentiates it.
// Cse merges its forward values with those of the forward pass if that is decomposed too.
std::vector<Val> GradientOfDecomposition(const OpRow& row, const GradContext& c);

}  // namespace onnxtrain
