// Removes casts between float32 and bf16 that kernels make unnecessary.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Removes f32 → bf16 → f32 round trips that PromoteHalfToFloat (backends/promote_types.h) leaves between a value and
// its only user, if
//   - the value is the result of a convolution, which accumulates in float32, unless all users round it again or have
//     kernels that read bf16;
//   - the user is a Relu whose result is rounded: rounding once gives the same bits;
//   - the value is normalized by a batch normalization and the user is a sum, which the normalization computes itself.
// Leaves dead nodes behind. Dead users count as users, so the graph should have none.
absl::StatusOr<Graph> EliminateCastRoundTrips(const Graph& graph);

// Runs after AssignLayouts. Replaces bf16 → f32 casts, a node and its f32 → bf16 casts by the node over bf16, where it
// has a kernel for that (KernelRow::bf16), and lets convolutions of bf16 write bf16 where nothing reads more. Clones
// the cast of a value that several elementwise operators read, so that each is fused with its own; rounds nothing
// between two operators that will be fused. Leaves dead nodes behind.
absl::StatusOr<Graph> FoldCasts(const Graph& graph);

}  // namespace onnxtrain::cpu
