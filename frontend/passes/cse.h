// Merges nodes that compute the same.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Of nodes with equal operator, inputs and attributes the first stays, in place of the later ones (which are left
// behind for Dce). Every operator of the table is a function of its inputs and attributes — random ones of their key
// and stream — so all may be merged; Add and Mul also with their operands exchanged. Runs before rematerialization,
// which clones nodes on purpose.
absl::StatusOr<Graph> Cse(const Graph& graph);

}  // namespace onnxtrain
