// Algebraic simplification of single nodes.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/cost.h"

namespace onnxtrain {

// Applies the rules of each node's row (ops/simplify/simplify.h), and those for all elementwise operators, once. Dce
// removes dead nodes, FoldConstants evaluates new constants. Values change only by rounding (merged constants) and in
// the sign of zeros.
absl::StatusOr<Graph> Simplify(const Graph& graph);

// Evaluates nodes of constants.

inline constexpr size_t kMaxFoldedBytes = size_t{1} << 20;  // of a node's outputs

// Replaces nodes that read only constants by the result of their row's `evaluate` if the outputs have at most
// `max_bytes` in total and the budget lasts (null: one for this call). Keeps an Expand unless it is tiny: a scalar
// takes less memory than its broadcast.
absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes = kMaxFoldedBytes,
                                    HostBudget* budget = nullptr);

// Returns false where FoldConstants finds nothing with any budget.
bool HasFoldableNodes(const Graph& graph, size_t max_bytes = kMaxFoldedBytes);

}  // namespace onnxtrain
