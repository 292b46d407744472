// Assigns weights and nodes to the stages of a pipeline.
//
// The placement of the weights is chosen once, from the forward graph of a training micro-batch. Each rank cuts all
// other graphs of the model (other batch sizes, evaluation) by this placement.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct Placement {
  int stages = 1;
  // The stages that read a weight, in ascending order. The first of them updates a trained weight. Small frozen weights
  // are not listed, because every stage may have them.
  std::map<std::string, std::vector<int>> weights;
  std::vector<double> seconds;         // predicted time of a micro-batch, by stage; ratios count only
  std::vector<int64_t> passed_values;  // bytes per micro-batch that a stage sends to the next; without the last stage

  bool Holds(const std::string& weight, int stage) const;
  int Owner(const std::string& weight) const;  // the stage that updates it; 0 if it is not listed
};

inline constexpr int kAnyStage = -1;

// Finds the nodes that every stage can compute without transfers: they depend on weights alone, or on feeds and no
// placed weight (masks, positions). Such nodes are cloned into every stage that reads them; all others belong to one
// stage.
class Dependencies {
 public:
  explicit Dependencies(const Graph& forward);

  bool IsCloned(size_t node) const { return cloned_[node]; }
  // Returns the placed inputs of `forward` that a node reads, directly or through cloned nodes.
  const std::vector<int32_t>& Weights(size_t node) const { return weights_[node]; }

 private:
  std::vector<bool> cloned_;
  std::vector<std::vector<int32_t>> weights_;  // by node: indices of inputs, ascending
};

// Cuts the nodes, in their order, into stages of equal time; among equally good cuts, chooses those that send the
// fewest bytes. `results` are values that the last stage needs. Fails if fewer nodes than stages read weights.
absl::StatusOr<Placement> PlaceWeights(const Graph& forward, std::span<const ValueId> results, int stages);

// Returns the stage of every node: the first stage that holds its weights and does not precede the stages of its
// operands; kAnyStage for cloned nodes.
absl::StatusOr<std::vector<int>> AssignStages(const Graph& forward, const Placement& placement);

}  // namespace onnxtrain
