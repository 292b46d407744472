// Fuses elementwise operators into the kernel that produces or consumes their operand: activations, residual sums,
// biases and casts into products, convolutions and normalizations; squares into sums; gradient accumulation into the
// producing GEMM (beta = 1) or scatter-add.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Fuses activations, residual sums and masks of gradients with convolutions and batch normalizations. Runs before casts
// are folded into these kernels, as an activation in between would be in the way. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseActivations(const Graph& graph);

// Fuses products, sums of squares and scatter-adds with their neighbors. Runs after weights are packed and casts are
// folded: a product that elementwise users read in bf16 must stay bf16. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseEpilogues(const Graph& graph);

}  // namespace onnxtrain::cpu
