// Algebraic simplification of single nodes, constant folding, and cancellation of transposes.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/cost.h"

namespace onnxtrain {

// Applies to each node, once, the rules of its row (ops/simplify/simplify.h) and those for all elementwise operators.
// Leaves dead nodes to Dce and new constants to FoldConstants. Values change only by the rounding of merged constants
// and in the sign of zeros.
absl::StatusOr<Graph> Simplify(const Graph& graph);

inline constexpr size_t kMaxFoldedBytes = size_t{1} << 20;  // limit for all outputs of a node

// Evaluates nodes that read only constants, by `evaluate` of their rows, while the budget lasts (null: a new one) and
// if the outputs of the node have at most `max_bytes`. Keeps an Expand unless it is tiny, since a scalar takes less
// memory than its broadcast.
absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes = kMaxFoldedBytes,
                                    HostBudget* budget = nullptr);

// Returns false if FoldConstants would change nothing, whatever the budget.
bool HasFoldableNodes(const Graph& graph, size_t max_bytes = kMaxFoldedBytes);

// Cancels the transposes that exporters of channels-last frameworks put around convolutions: sinks transposes between
// [N,C,…] and [N,…,C] below elementwise operators, Softmax, Concat, Pad, Slice and reductions, and removes pairs that
// cancel, among forward and backward nodes. Returns the graph unchanged unless the result transposes fewer elements.
absl::StatusOr<Graph> CancelTransposes(const Graph& graph);

}  // namespace onnxtrain
