// The part of a model that one rank of a tensor-parallel group computes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/parallel/tensor/split_rules.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// The weights and nodes of a forward graph that are divided among the ranks of a tensor-parallel group.
//
// A region begins at a product whose output is divided by the columns of its weight, and ends at products that sum over
// the divided axis, after which the whole value is the sum over the ranks (Shoeybi et al., "Megatron-LM", 2019). It
// grows along the axis, forward and backward, by the rules of single nodes (split_rules.h), so that attention heads,
// biases, gated units, grouped keys and convolution channels need no pattern. Regions that reach a node that needs the
// whole axis are not divided; values that the loss reads are joined.
struct SplitPlan {
  int ranks = 1;
  std::map<ValueId, AxisSplit> values;  // graph inputs and outputs of nodes
  std::map<int32_t, NodeSplit> nodes;
  std::set<ValueId> joined;  // divided values that are also needed whole
};

// Plans the division. `results` are values that every rank needs whole. Embeddings are divided by rows if
// `splits_table` returns true for them, which must not depend on the batch.
SplitPlan PlanSplit(const Graph& forward, std::span<const ValueId> results, int ranks,
                    const std::function<bool(const Node& gather)>& splits_table);
// Returns true if the table has more rows than the node reads.
bool IsLargeTable(const Graph& forward, const Node& gather);

inline constexpr char kTensorGroup[] = "tensor";  // name of the group in collective operators

// Builds the graph that computes the part of `rank`. Divided inputs, and outputs that update them, have the shape of
// the part; values that the plan joins are whole. Dropout keeps the same elements as on a single rank. `values` maps
// old to new values.
absl::StatusOr<Graph> BuildPart(const Graph& forward, const SplitPlan& plan, int rank, std::vector<ValueId>* values);

// Decomposes Attention with dropout, because a part of it could not draw the random numbers of the whole node.
absl::StatusOr<Graph> DecomposeDropout(const Graph& forward, std::vector<ValueId>* values);

using WeightSplits = std::map<std::string, AxisSplit>;  // by divided weight; other weights are whole on every rank

struct ModelSplit {
  PreparedModel prepared;  // weights and their values are those of the rank; the loss is of the whole batch
  WeightSplits weights;
};

// Returns the part of a model that `rank` computes. `decided` has the splits chosen for the training micro-batch, which
// all other graphs of the model (other batch sizes, evaluation) must use; null to choose them. Fails if no weight can
// be divided, or if the graph does not permit the splits.
absl::StatusOr<ModelSplit> SplitModel(const PreparedModel& whole, const WeightSplits* decided, int rank, int ranks);

}  // namespace onnxtrain
