// Algebraic simplification of single nodes.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Applies the rules of simplify_arithmetic.cc and simplify_shape.cc to each node once. Dce removes dead nodes,
// FoldConstants evaluates new constants. Values change only by rounding (merged constants) and in the sign of zeros.
absl::StatusOr<Graph> Simplify(const Graph& graph);

}  // namespace onnxtrain
