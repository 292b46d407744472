// Decomposes channels-last batch normalizations into column sums and elementwise operators, so that generated kernels
// fuse them with adjacent activations and with casts from and to half precision.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// Decomposes torch.NhwcBatchNorm and torch.NhwcBatchNormGrad if a generated kernel can sum the columns. Does not remove
// dead nodes. If not null, `values` is set to the new values, indexed by old ones.
absl::StatusOr<Graph> ExpandBatchNorms(const Graph& graph, std::vector<ValueId>* values = nullptr);

}  // namespace onnxtrain::aten
