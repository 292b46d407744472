// Batch normalization with the statistics of all ranks.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/collective.h"

namespace onnxtrain {

// Has every BatchNorm of a training graph take mean and variance over the samples of all ranks of the group, of which
// each has at least one. Ranks gather count, mean and squared deviations of their samples and merge them as Chan,
// Golub and LeVeque (1979) do. For running averages, the output `rstd` stands for a variance whose unbiased form, made
// of the samples of this rank alone, is that of all samples.
// *values: the new values by old ones.
absl::StatusOr<Graph> SyncBatchNorm(const Graph& graph, const RankGroup& group, std::vector<ValueId>* values);

}  // namespace onnxtrain
