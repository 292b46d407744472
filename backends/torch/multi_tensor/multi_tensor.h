// torch.SumOfSquares: the sum of the squares of all elements of all inputs, in float64. One launch for many tensors, as
// the norm of a gradient needs it: kernels of one tensor each cost more to start than to run.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

inline constexpr char kCastTogether[] = "torch.CastTogether";

// Adds the row to the table of operators. Idempotent.
void RegisterCastTogether();

// Joins the casts of parameters to half precision where that holds no more memory: of those that are read more than
// once, as by the backward pass, and of small ones; not of those that are cast more than once. Leaves dead nodes
// behind. `values` (may be null) is set to the new values by old ones.
absl::StatusOr<Graph> CastWeightsTogether(const Graph& graph, std::vector<ValueId>* values = nullptr);

inline constexpr char kSumOfSquares[] = "torch.SumOfSquares";

// Adds the row to the table of operators. Idempotent.
void RegisterSumOfSquares();

// Replaces sums of two and more SquaredNorm nodes. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseSumsOfSquares(const Graph& graph);

}  // namespace onnxtrain::aten
