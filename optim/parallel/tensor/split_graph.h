// The forward graph of one rank of a tensor-parallel group.
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

namespace onnxtrain {

// Which weights and nodes of a forward graph are divided among the ranks of a tensor-parallel group.
//
// A region begins at a product whose output is divided by the columns of its weight, and ends at products that sum over
// the divided axis, after which the whole value is the sum over the ranks (Shoeybi et al., "Megatron-LM", 2019). It
// grows along the axis, forward and backward, by the rules of single nodes (split_rules.h), so that attention by heads,
// biases, gated units, grouped keys and channels of convolutions need no pattern. Regions that meet a node that needs
// the whole axis are not divided; values that the loss reads are joined.

struct SplitPlan {
  int ranks = 1;
  std::map<ValueId, AxisSplit> values;  // graph inputs and outputs of nodes
  std::map<int32_t, NodeSplit> nodes;
  std::set<ValueId> joined;  // of `values`: those that are needed whole, too
};

// `results`: values of which every rank needs the whole. Embeddings are divided by rows where `splits_table` says so:
// what it returns must not depend on the batch.
SplitPlan PlanSplit(const Graph& forward, std::span<const ValueId> results, int ranks,
                    const std::function<bool(const Node& gather)>& splits_table);
// Has the table more rows than the node reads?
bool IsLargeTable(const Graph& forward, const Node& gather);

inline constexpr char kTensorGroup[] = "tensor";  // name of the group in collective operators

// Builds the graph that computes the part of `rank`. Inputs that the plan divides have the shape of their part, and so
// have outputs that are updates of them; values that the plan joins are whole. Elements that dropout keeps are those of
// one rank. `values` gets the new values by old ones.
absl::StatusOr<Graph> BuildPart(const Graph& forward, const SplitPlan& plan, int rank, std::vector<ValueId>* values);

// Splits up attention with dropout, whose parts could not draw the numbers of the whole.
absl::StatusOr<Graph> DecomposeDropout(const Graph& forward, std::vector<ValueId>* values);

}  // namespace onnxtrain
