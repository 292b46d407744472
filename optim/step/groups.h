// Groups trained weights by weight decay and learning rate factor: a group is updated as one flat tensor.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/optimizer.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

struct UpdateRule {
  double weight_decay = 0;
  double lr_factor = 1;  // of the scheduled rate
  auto operator<=>(const UpdateRule&) const = default;
};

struct WeightGroup {
  std::string name;  // "decay", "plain", with the factor unless it is 1: "plain×10"
  UpdateRule rule;
  std::vector<const WeightDecision*> members;  // in weight order; point into the vector given to GroupWeights
};

// Groups the trained weights, decayed groups first. Fails where a no-decay glob or a rate matches no weight.
absl::StatusOr<std::vector<WeightGroup>> GroupWeights(const OptimizerSpec& spec,
                                                      const std::vector<WeightDecision>& weights);

}  // namespace onnxtrain
