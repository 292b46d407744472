// Layouts: which values of a graph are kept with their channels as the last axis.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Moves convolutions over float32 tensors, and what lies between them, to channels last: a value [N,C,…] becomes one of
// shape [N,…,C], with explicit transposes where the two kinds meet. Convolutions that oneDNN runs well in that layout always
// move; what only follows (elementwise operators, BatchNorm, pooling, Concat, reductions …) moves where that leaves fewer
// bytes to be transposed, found by local search. Packed weights become nodes (cpu.PackConvWeight), and convolutions of one
// element become products. Where both factors were widened from bf16 and the processor multiplies that, they are multiplied as
// they were, and added up in float32. All nodes must have kernels. Leaves dead nodes behind.
absl::StatusOr<Graph> MoveChannelsLast(const Graph& graph);

}  // namespace onnxtrain::cpu
