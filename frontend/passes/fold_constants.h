// Evaluates nodes of constants.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Replaces nodes that read only constants by the result of their row's `evaluate` if the outputs have at most
// `max_bytes` in total. Keeps an Expand unless it is tiny: a scalar takes less memory than its broadcast.
absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes = size_t{1} << 20);

}  // namespace onnxtrain
