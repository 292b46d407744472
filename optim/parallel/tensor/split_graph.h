// The forward graph of one rank of a tensor-parallel group.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/parallel/tensor/split_plan.h"

namespace onnxtrain {

inline constexpr char kTensorGroup[] = "tensor";  // name of the group in collective operators

// Builds the graph that computes the part of `rank`. Inputs that the plan divides have the shape of their part, and so
// have outputs that are updates of them; values that the plan joins are whole. Elements that dropout keeps are those of
// one rank. `values` gets the new values by old ones.
absl::StatusOr<Graph> BuildPart(const Graph& forward, const SplitPlan& plan, int rank, std::vector<ValueId>* values);

// Splits up attention with dropout, whose parts could not draw the numbers of the whole.
absl::StatusOr<Graph> DecomposeDropout(const Graph& forward, std::vector<ValueId>* values);

}  // namespace onnxtrain
