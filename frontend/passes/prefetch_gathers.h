// Gathers of weights that go on while the nodes before their readers compute.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Divides every AllGather of a graph input into its begin and an AwaitGather where it was. It begins before the gather
// in front of it ends: what reads that one computes meanwhile. At most two are under way, in the order of the graph.
absl::StatusOr<Graph> PrefetchGathers(const Graph& graph);

}  // namespace onnxtrain
