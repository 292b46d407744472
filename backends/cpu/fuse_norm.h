// Layer and root mean square normalizations take in what stands around them (norm_ops.h): the sum with a residual and its dropout, the rounding of the
// result, and in the backward pass sums of gradients, the mask of the dropout and the gradient of the bias before it.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Of a legalized graph, after rematerialization: a joined node would have to be kept or repeated as a whole.
absl::StatusOr<Graph> FuseNorms(const Graph& graph);

}  // namespace onnxtrain::cpu
