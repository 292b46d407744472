// Passes over programs that several ranks run together: gathers of sharded weights, a fixed order of all collectives,
// and batch normalization with the statistics of all ranks.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/collective.h"

namespace onnxtrain {

// A sharded weight (ZeRO-3; Rajbhandari et al., "ZeRO", 2020). Its elements are in a matrix [rows, ranks · slice], of
// which each rank stores the columns [rows, slice].
struct WeightColumns {
  std::string input;  // name of the graph input that holds the columns of this rank
  Type type;          // type of that input
};

struct GatherWeightsOptions {
  RankGroup group;
  std::map<std::string, WeightColumns> weights;
  // A gathered weight is reused until more than this many bytes of other weights have been gathered after it.
  size_t keep = 0;
};

// Replaces the graph inputs with these names by AllGathers of their columns, each directly before its first reader.
// Distant readers, such as those in the backward pass, get another gather, so that the memory of the whole weight is
// free in between. Views, casts and transposes of weights are recomputed with every gather. No graph output may be such
// a weight.
absl::StatusOr<Graph> GatherWeights(const Graph& graph, const GatherWeightsOptions& options);

// Overlaps gathers of weights with computation: splits every AllGather of a graph input into a begin and, at the old
// place, an AwaitGather. A gather begins before the previous one is awaited if both together have at most `max_bytes`,
// so it proceeds while the readers of the previous one compute. At most two gathers are in flight, in graph order. If
// `max_bytes` is the size of the largest gather, prefetching needs no additional memory.
absl::StatusOr<Graph> PrefetchGathers(const Graph& graph, size_t max_bytes);

bool HasCollectives(const Graph& graph);

// Makes every collective operator take the token of the previous one in graph order. No pass or schedule can then
// reorder them, so ranks with equal graphs (of any batch size) execute the same collectives in the same order.
absl::StatusOr<Graph> OrderCollectives(const Graph& graph);

// Makes every BatchNorm of a training graph use the mean and variance over the samples of all ranks of the group; each
// rank must have at least one. Ranks gather the count, mean and squared deviations of their samples and merge them
// (Chan, Golub and LeVeque, 1979). The running variance is computed from the output `rstd` with the sample count of
// this rank, so `rstd` is adjusted such that this gives the unbiased variance over all samples.
// Stores in *values the new value of each old one.
absl::StatusOr<Graph> SyncBatchNorm(const Graph& graph, const RankGroup& group, std::vector<ValueId>* values);

}  // namespace onnxtrain
