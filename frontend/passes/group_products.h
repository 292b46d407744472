// Finds products with chosen matrices of a stack, as exporters write mixtures of experts.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Replaces x·Gather(W, ids) by GroupedMatMul, which has no copies of the matrices. Runs before Differentiate: without
// copies, there are no gradients of copies either.
absl::StatusOr<Graph> GroupProducts(const Graph& graph);

}  // namespace onnxtrain
