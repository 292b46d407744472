// Common subexpression elimination.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Replaces a node by the first one with equal operator, inputs and attributes, for commutative operators in either
// order. Dce removes the dead nodes. Every operator is a function of its inputs and attributes (random ones of their
// key and stream), so all may be merged. Runs before rematerialization, which clones nodes on purpose.
absl::StatusOr<Graph> Cse(const Graph& graph);

// Returns false where Cse finds nothing. Costs much less than Cse.
bool HasEqualNodes(const Graph& graph);

}  // namespace onnxtrain
