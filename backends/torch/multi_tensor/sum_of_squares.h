// torch.SumOfSquares: the sum of the squares of all elements of all inputs, in float64. One launch for many tensors, as
// the norm of a gradient needs it: kernels of one tensor each cost more to start than to run.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

inline constexpr char kSumOfSquares[] = "torch.SumOfSquares";

// Adds the row to the table of operators. Idempotent.
void RegisterSumOfSquares();

// Replaces sums of two and more SquaredNorm nodes. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseSumsOfSquares(const Graph& graph);

}  // namespace onnxtrain::aten
