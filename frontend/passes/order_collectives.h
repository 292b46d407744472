// Gives the collective operators of a graph one order.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

bool HasCollectives(const Graph& graph);

// Has every collective operator take the token of the one before, in the order of the graph: no pass and no schedule
// runs them in another, so ranks with equal graphs (of any batch size) meet in the same operators.
absl::StatusOr<Graph> OrderCollectives(const Graph& graph);

}  // namespace onnxtrain
