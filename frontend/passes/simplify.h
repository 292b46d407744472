// Algebra on single nodes: what computes nothing goes, what has a cheaper form takes it.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// One round of the rules of simplify_arithmetic.cc and simplify_shape.cc over all nodes. What is left behind is for
// Dce; what became constant, for FoldConstants. Values change by rounding alone (merged constants), and by the sign of
// zeros.
absl::StatusOr<Graph> Simplify(const Graph& graph);

}  // namespace onnxtrain
