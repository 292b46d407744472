// Rewrites a language model so that a row of its inputs may hold several samples (sequence packing without
// cross-contamination; Krell et al., 2021, arXiv:2107.02027).
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/model_input.h"

namespace onnxtrain {

// The feed i64 [batch, length] that SeparateSamples adds: the position of each token in its sample. A sample begins
// where it is 0; padding follows as a sample of its own.
inline constexpr char kPositionsFeed[] = "$positions";

// Rewrites a canonical forward graph:
//   - The masks of padding become constants, since no sample sees the padding.
//   - Attention hides the keys of other samples, in addition to what its mask hides.
//   - Values that depend on positions but on no token (rows of a position table, rotary angles), which the graph
//     computes for positions 0 … length − 1, are looked up by kPositionsFeed where they meet tokens.
// Tracks the length axis from the token inputs to the outputs [batch, length, …]. Fails, naming the node, where another
// node than attention combines the tokens of a row, and where positions have a form that cannot be looked up. If a fed
// mask separates the samples, returns such a graph unchanged instead: its positions may be inputs.
absl::StatusOr<Graph> SeparateSamples(const Graph& graph, const PackedInputs& inputs);

}  // namespace onnxtrain
