// The passes in the order in which they belong.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/passes/pass.h"

namespace onnxtrain {

// fold_constants, simplify, cse and dce until nothing changes, then cancel_transposes and these again. For any graph: imported, joint (with its backward nodes)
// or decomposed. Inputs, outputs and their order stay.
absl::StatusOr<Graph> CleanUp(Graph graph, const PassObserver& observer = nullptr);

// For a forward graph, before Differentiate: CleanUp and Recognize until nothing changes (what is recognized may be
// part of a larger pattern).
absl::StatusOr<Graph> Canonicalize(Graph graph, const PassObserver& observer = nullptr);

}  // namespace onnxtrain
