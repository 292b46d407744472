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
