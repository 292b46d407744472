// The part of a model that one rank of a pipeline computes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/parallel/pipeline/placement.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Feeds with this prefix get what another stage has sent.
inline constexpr char kTransferPrefix[] = "$transfer:";

// A value of an earlier stage that a later one reads. It passes through those between.
struct Boundary {
  std::string name;  // of the feed that receives it, the same on all stages
  Type type;
  bool differentiable = false;  // depends on trained weights: its gradient is sent back
};
std::string SentName(const Boundary& boundary);  // of the output that is sent on
std::string SeedName(const Boundary& boundary);  // of the feed that receives its gradient

struct Stage {
  int index = 0, count = 1;
  // The graph has a feed for every boundary `in`, and outputs SentName for every one `out`; only the weights that it
  // reads. The loss is that of the whole model, and refers to the graph of the last stage.
  PreparedModel prepared;
  std::vector<Boundary> in, out;

  bool last() const { return index + 1 == count; }
};

// The forward graph of what the loss needs, and its values, by term.
struct LossGraph {
  Graph graph;
  std::vector<ValueId> results;
};
// With the outputs of running statistics. Parameters and state that it does not read stay inputs.
LossGraph ReduceToLoss(const PreparedModel& whole);

absl::StatusOr<Stage> CutStage(const PreparedModel& whole, const Placement& placement, int stage);

}  // namespace onnxtrain
