// Fuses layer and RMS normalizations with their neighbors (norm_ops.h): the residual sum and its dropout, casts to and
// from bf16 and, in the backward pass, sums of gradients, the mask of the dropout and the bias gradient before it.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Takes sums and casts from the chains that consist of nothing else (FindSumChains). Leaves dead nodes behind.
absl::StatusOr<Graph> FuseNorms(const Graph& graph);

}  // namespace onnxtrain::cpu
