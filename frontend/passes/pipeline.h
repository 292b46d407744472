// The sequences of passes that clean up and canonicalize a graph.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/passes/pass.h"

namespace onnxtrain {

// Runs fold_constants, simplify, cse and dce until nothing changes, then cancel_transposes and the same passes again.
// Accepts any graph: imported, joint (with backward nodes) or decomposed. Keeps inputs, outputs and their order.
absl::StatusOr<Graph> CleanUp(Graph graph, const PassObserver& observer = nullptr);

// Runs CleanUp and Recognize until nothing changes, since composites may be part of larger patterns. Requires a forward
// graph, before Differentiate.
absl::StatusOr<Graph> Canonicalize(Graph graph, const PassObserver& observer = nullptr);

}  // namespace onnxtrain
