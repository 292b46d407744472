// Writes batch normalizations over channels last as sums of columns and elementwise operators, of which generated
// kernels are made: together with the activation before or behind them, and without a pass over memory for the casts
// from and to half precision.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// Expands torch.NhwcBatchNorm and torch.NhwcBatchNormGrad where a kernel sums the columns. Leaves dead nodes behind.
// `values` (may be null) is set to the new values by old ones.
absl::StatusOr<Graph> ExpandBatchNorms(const Graph& graph, std::vector<ValueId>* values = nullptr);

}  // namespace onnxtrain::aten
