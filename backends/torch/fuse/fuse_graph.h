// Fuses elementwise operators, normalizations and reductions into torch.Fused nodes (fused_op.h), for devices on which
// every kernel costs a launch and a pass over memory.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// Fuses chains of operators over one shape with reductions of their rows, whose results the chain may read, and with
// sums of their columns, which only outputs may read. Also replaces single operators for which ATen launches several
// kernels. Does not remove dead nodes. If not null, `values` is set to the new values, indexed by old ones; kNoValue
// for values that exist only within a kernel.
absl::StatusOr<Graph> FuseGraph(const Graph& legal, std::vector<ValueId>* values = nullptr);

// Returns true if a generated kernel that sums the columns of a matrix of `elements` elements is faster than ATen's.
bool PaysToSumColumns(int64_t elements, int64_t columns);

}  // namespace onnxtrain::aten
