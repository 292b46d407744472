// Roundings to bf16 that nobody needs.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Of what was widened (backends/widen.h), these values are not rounded to bf16 on their way to their only reader, which reads float32:
//   - results of convolutions, which accumulate in float32: their weights' gradients, and what is not rounded again at once. Kernels
//     that read bf16 themselves (absorb_casts.h) get that.
//   - what a Relu reads that is rounded behind it: the result is the same.
//   - what a batch normalization gives to a sum, which it can add up itself.
// Leaves dead nodes behind; counts dead readers, so that none should be there.
absl::StatusOr<Graph> SkipRounding(const Graph& graph);

}  // namespace onnxtrain::cpu
