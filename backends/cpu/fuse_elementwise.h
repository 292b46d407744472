// Joins elementwise nodes, and sums over their values, into cpu.Fused nodes.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// A value disappears into a chain only if all of its readers are elementwise over the same shape, or sums over its first or its last
// axes: what a product or another reduction reads is computed once and stored, and no forward value is recomputed or kept longer for
// a backward chain.
absl::StatusOr<Graph> FuseElementwise(const Graph& graph);

}  // namespace onnxtrain::cpu
