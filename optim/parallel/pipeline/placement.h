// Which stage of a pipeline computes what, and holds which weights.
//
// The placement of the weights is chosen once, from the forward graph of a training micro-batch. All other graphs of
// the model (of other batches, of evaluations) are cut after it, on each rank by itself.
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
  // The stages that read a weight, in ascending order. A trained weight is updated by the first of them. Small frozen
  // weights are not listed: every stage may have them.
  std::map<std::string, std::vector<int>> weights;
  std::vector<double> seconds;         // predicted time of a micro-batch, by stage; ratios count only
  std::vector<int64_t> passed_values;  // bytes of a micro-batch that stage s passes on, by s; one fewer than stages

  bool Holds(const std::string& weight, int stage) const;
  int Owner(const std::string& weight) const;  // 0 where it is not listed
};

inline constexpr int kAnyStage = -1;

// Nodes that a stage can compute by itself depend on weights alone, or on feeds and no weight that is placed (masks,
// positions). They are cloned into every stage that reads them; all others belong to one stage.
class Dependencies {
 public:
  explicit Dependencies(const Graph& forward);

  bool IsCloned(size_t node) const { return cloned_[node]; }
  // The inputs of `forward` that a node reads, directly or through cloned nodes, and that are placed.
  const std::vector<int32_t>& Weights(size_t node) const { return weights_[node]; }

 private:
  std::vector<bool> cloned_;
  std::vector<std::vector<int32_t>> weights_;  // by node: indices of inputs, ascending
};

// Cuts the nodes, in their order, where the stages take equal times, and between cuts that are as good where least is
// passed on. `results`: what the last stage needs. Fails where fewer nodes than stages read weights.
absl::StatusOr<Placement> PlaceWeights(const Graph& forward, std::span<const ValueId> results, int stages);

// Returns the stage of every node: the first that holds its weights and comes after those of its operands; kAnyStage
// for cloned ones.
absl::StatusOr<std::vector<int>> AssignStages(const Graph& forward, const Placement& placement);

}  // namespace onnxtrain
