// Fuses elementwise operators, normalizations and reductions into torch.Fused nodes (fused_op.h), for devices where
// every kernel costs a launch and a pass over memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// Fuses chains over one shape with the reductions of their rows, whose results the chain may read, and with the sums of
// their columns, which end it. Single operators for which ATen takes several kernels are replaced, too. `values` (may
// be null) is set to the new values by old ones, kNoValue where one exists inside a kernel only. Leaves dead nodes
// behind.
absl::StatusOr<Graph> FuseGraph(const Graph& legal, std::vector<ValueId>* values = nullptr);

// Is a kernel that sums columns worth its while, with so many elements in as many columns?
bool PaysToSumColumns(int64_t elements, int64_t columns);

}  // namespace onnxtrain::aten
