// For backends whose kernels lack an element type: nodes that would need it compute in a wider one, between casts.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Is there no kernel for the node as it is?
using Lacks = std::function<bool(const Graph&, const Node&)>;

// Half precision is stored; what computes does so in float32.
absl::StatusOr<Graph> ComputeHalvesInFloat(const Graph& graph, const Lacks& lacks);

// Unsigned integers of 16 to 64 bits are stored; what computes does so in int64, with the results that the unsigned type
// would have given. Only casts from and to these types and what merely moves elements must exist.
absl::StatusOr<Graph> ComputeUnsignedInSigned(const Graph& graph, const Lacks& lacks);

}  // namespace onnxtrain
