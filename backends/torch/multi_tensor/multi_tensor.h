// Operators over many tensors, computed by few launches, because one kernel per tensor costs more to start than to run:
// torch.CastTogether casts every input to half precision; torch.SumOfSquares sums the squares of all elements of all
// inputs in float64, for example for the norm of all gradients.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

inline constexpr char kCastTogether[] = "torch.CastTogether";

// Adds the row to the table of operators. Idempotent.
void RegisterCastTogether();

// Joins casts of parameters to half precision into one launch if that needs no more memory. This holds for parameters
// with a single cast that are small or whose cast has several users, such as the backward pass. Does not remove dead
// nodes. If not null, `values` is set to the new values, indexed by old ones.
absl::StatusOr<Graph> CastWeightsTogether(const Graph& graph, std::vector<ValueId>* values = nullptr);

inline constexpr char kSumOfSquares[] = "torch.SumOfSquares";

// Adds the row to the table of operators. Idempotent.
void RegisterSumOfSquares();

// Replaces sums of two or more SquaredNorm nodes. Does not remove dead nodes.
absl::StatusOr<Graph> FuseSumsOfSquares(const Graph& graph);

}  // namespace onnxtrain::aten
