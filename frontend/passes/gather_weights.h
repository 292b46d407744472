// Weights of which every rank has a part (ZeRO-3; Rajbhandari et al., "ZeRO", 2020), gathered where they are read.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/collective.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
