// Mixed precision (Micikevicius et al., "Mixed Precision Training", 2018) as a pass.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Assigns a precision to every float32 value, forward and backward, by the precision class of its operators (Precision
// in ops/row.h), and inserts the casts:
//
// - kLow: products, convolutions and attention read `low` (f16 or bf16). They produce `low` if another of them reads
// the
//   result, directly or through kPropagate operators; otherwise a Cast to f32 follows directly, and a backend whose
//   product accumulates in float32 writes that. Operands that the row accepts in float32 (attention masks) stay
//   float32.
// - kPropagate: in `low` if all inputs, except weights and exact constants, are in `low` and such a user exists.
// - kFloat32: norms, exponentials, sums and losses. Their values are saved in `low` if all users read `low` or are
//   backward operators.
// - kMixedIo: batch normalization computes in float32, with float32 statistics and weights; its input and output are
//   saved in `low`, as between products.
//
// Graph inputs and outputs keep their types: weights, moments and gradients stay float32. Casts of weights depend on
// weights alone, so `hoist` computes them once per update. A product without a sum (of one inner element, as in rotary
// embeddings) stays float32. Returns a graph without products unchanged.
absl::StatusOr<Graph> MixedPrecision(const Graph& graph, DType low);

}  // namespace onnxtrain
