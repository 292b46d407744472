// Decomposes composites into primitives.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Replaces nodes for which `should_decompose` returns true by their decompositions until none that has one is left.
// Keeps all other nodes, including dead ones.
absl::StatusOr<Graph> DecomposeNodes(const Graph& graph,
                                     const std::function<bool(const Graph&, const Node&)>& should_decompose);

// Computes the gradient of a row from its decomposition: appends the decomposition over c.inputs and differentiates it.
// If the forward node is decomposed too, Cse merges the forward values.
std::vector<Val> GradientOfDecomposition(const OpRow& row, const GradContext& c);

}  // namespace onnxtrain
