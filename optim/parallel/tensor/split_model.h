// The part of a model that one rank of a tensor-parallel group computes.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "optim/parallel/tensor/split_rules.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

using WeightSplits = std::map<std::string, AxisSplit>;  // by weight; others are whole on every rank

struct ModelSplit {
  PreparedModel prepared;  // weights and their values are those of the rank; the loss is of the whole batch
  WeightSplits weights;
};

// `decided`: of the graph of a training micro-batch, which all other graphs of the model (of other batches, of
// evaluations) follow; null: this is it. Fails where no weight can be divided, or where a graph cannot follow.
absl::StatusOr<ModelSplit> SplitModel(const PreparedModel& whole, const WeightSplits* decided, int rank, int ranks);

}  // namespace onnxtrain
