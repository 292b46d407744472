// Passes over programs that several ranks run together: gathers of divided weights, one order for all exchanges, and
// batch normalization with the statistics of all ranks.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/collective.h"

namespace onnxtrain {

// Weights of which every rank has a part (ZeRO-3; Rajbhandari et al., "ZeRO", 2020), gathered where they are read.

// Every rank has columns [rows, slice] of the matrix [rows, ranks · slice] that holds the elements of the weight.
struct WeightColumns {
  std::string input;  // name of the graph input with the columns
  Type type;          // theirs
};

struct GatherWeightsOptions {
  RankGroup group;
  std::map<std::string, WeightColumns> weights;
  // A gathered weight is read again, and not gathered again, as long as no more bytes of others have been gathered
  // since.
  size_t keep = 0;
};

// Replaces graph inputs of these names with AllGathers of their columns, each right before its first reader. A reader
// that is further away, as in the backward pass, has a gather of its own, so that the memory of the whole weight is
// free between the two. Views, casts and transposes of weights are computed with every gather. Graph outputs must not
// be such weights.
absl::StatusOr<Graph> GatherWeights(const Graph& graph, const GatherWeightsOptions& options);

// Gathers of weights that go on while the nodes before their readers compute.

// Divides every AllGather of a graph input into its begin and an AwaitGather where it was. It begins before the gather
// in front of it ends, if both have at most `most_bytes`: what reads that one computes meanwhile. At most two are under
// way, in the order of the graph. With the bytes of the largest gather, two at once take no more memory than that one.
absl::StatusOr<Graph> PrefetchGathers(const Graph& graph, size_t most_bytes);

// Gives the collective operators of a graph one order.

bool HasCollectives(const Graph& graph);

// Has every collective operator take the token of the one before, in the order of the graph: no pass and no schedule
// runs them in another, so ranks with equal graphs (of any batch size) meet in the same operators.
absl::StatusOr<Graph> OrderCollectives(const Graph& graph);

// Batch normalization with the statistics of all ranks.

// Has every BatchNorm of a training graph take mean and variance over the samples of all ranks of the group, of which
// each has at least one. Ranks gather count, mean and squared deviations of their samples and merge them as Chan,
// Golub and LeVeque (1979) do. For running averages, the output `rstd` stands for a variance whose unbiased form, made
// of the samples of this rank alone, is that of all samples.
// *values: the new values by old ones.
absl::StatusOr<Graph> SyncBatchNorm(const Graph& graph, const RankGroup& group, std::vector<ValueId>* values);

}  // namespace onnxtrain
