// Promotes nodes whose element types have no kernel to a wider type, between casts.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

bool IsHalf(DType dtype);  // f16, bf16

// Returns true if the node has no kernel for its element types.
using IsUnsupported = std::function<bool(const Graph&, const Node&)>;

// Makes unsupported nodes compute in float32. Values stay half precision in memory.
absl::StatusOr<Graph> PromoteHalfToFloat(const Graph& graph, const IsUnsupported& is_unsupported);

// Makes unsupported nodes compute in int64, with the results of the unsigned type. Values stay unsigned (16 to 64 bits)
// in memory. The backend must have casts from and to these types and operators that only move elements.
absl::StatusOr<Graph> PromoteUnsignedToInt64(const Graph& graph, const IsUnsupported& is_unsupported);

}  // namespace onnxtrain
