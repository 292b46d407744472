// Applies a schedule of fused kernels to the graph before fusion.
#pragma once

#include "backends/backend.h"
#include "optim/memory/policy.h"

namespace onnxtrain {

// Returns the legalized graph with the clones that `recomputed` (by node of the planner's model) asks for. The planner
// was made of fused.graph. All nodes of a kernel are cloned together, for the same users, so that a clone can fuse like
// its original. The list order of the result is the planner's.
Graph ApplyRecompute(const Graph& legal, const FusedGraph& fused, const RecomputePlanner& planner,
                     const RecomputeSchedule& recomputed);

}  // namespace onnxtrain
