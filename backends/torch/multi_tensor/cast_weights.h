// torch.CastTogether: inputs of one type, cast to the type `to`, one output for each. The weights of a model in mixed
// precision take a few launches, where a Cast for each takes hundreds.
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

}  // namespace onnxtrain::aten
