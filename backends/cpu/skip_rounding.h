// Roundings to bf16 that nobody needs.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Of what was widened (backends/widen.h), these values are not rounded to bf16 on their way to their only reader, which reads float32:
//   - results of convolutions, which accumulate in float32. Their weights' gradients are among them.
//   - what a Relu reads that is rounded behind it: the result is the same.
// Leaves dead nodes behind; counts dead readers, so that none should be there.
absl::StatusOr<Graph> SkipRounding(const Graph& graph);

}  // namespace onnxtrain::cpu
