// Mixed precision (Micikevicius et al., "Mixed Precision Training", 2018) as a rewriting of the graph.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Gives every float32 value of the graph, forward and backward alike, the precision that its operators ask for
// (Precision in ops/row.h) and writes the casts between them:
//
//   low       products, convolutions and attention read `low` (f16 or bf16), and give it where another of them reads the result,
//             directly or through operators that follow. Where nobody does (gradients of weights, logits) a Cast to f32
//             stands behind them at once: a backend whose product accumulates in float32 writes that. Inputs that the
//             row takes in float32 beside low ones (attention masks) stay so.
//   follow    in `low` where all inputs have it, weights and exact constants aside, and where such a reader waits; else f32
//   float32   norms, exponentials, sums, losses. What only low readers (and fused backward operators) read is kept as `low`.
//   inside    batch normalization: computed in float32, with its statistics and weights; what it normalizes, and gives, is kept as
//             `low` as between products
//
// Inputs and outputs of the graph keep their types: weights, moments and gradients stay float32. Casts of weights depend on
// weights alone, so `hoist` makes them once per update. A product without a sum (of one inner element, as rotary positions
// are made) stays float32. A graph without products is returned as it is.
absl::StatusOr<Graph> MixedPrecision(const Graph& graph, DType low);

}  // namespace onnxtrain
