// Computes what depends on constants alone.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Replaces nodes that read only constants, by their row's `evaluate`, where the outputs together have at most
// `max_bytes`. An Expand stays unless it is tiny: one number says the same as the tensor that it is spread over.
absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes = size_t{1} << 20);

}  // namespace onnxtrain
