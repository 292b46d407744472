// Gathers of weights that go on while the nodes before their readers compute.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Divides every AllGather of a graph input into its begin and an AwaitGather where it was. It begins before the gather
// in front of it ends, if both have at most `most_bytes`: what reads that one computes meanwhile. At most two are under
// way, in the order of the graph. With the bytes of the largest gather, two at once take no more memory than that one.
absl::StatusOr<Graph> PrefetchGathers(const Graph& graph, size_t most_bytes);

}  // namespace onnxtrain
