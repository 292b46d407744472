// Composites into primitives.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Replaces every node that `lacks` names and whose row has a decomposition, until none is left. Nodes that are lacking
// and have no decomposition stay. The result is not cleaned of dead nodes.
absl::StatusOr<Graph> DecomposeNodes(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& lacks);

// The gradient of a row by its decomposition: appends the decomposition over c.inputs (its forward values are computed
// anew; cse merges them with the forward pass where that was decomposed too) and differentiates it.
std::vector<Val> GradientOfDecomposition(const OpRow& row, const GradContext& c);

}  // namespace onnxtrain
