// Which weights are updated alike.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/optimizer.h"
#include "optim/trainable.h"

namespace onnxtrain {

struct UpdateRule {
  double weight_decay = 0;
  double lr_factor = 1;  // of the scheduled rate
  auto operator<=>(const UpdateRule&) const = default;
};

struct WeightGroup {
  std::string name;  // "decay", "plain", with the factor where there is one: "plain×10"
  UpdateRule rule;
  std::vector<const WeightDecision*> members;  // in the order of the weights, which must outlive this
};

// The trained weights in groups. Fails where --no-decay or a rate is for a weight that is not there.
absl::StatusOr<std::vector<WeightGroup>> GroupWeights(const OptimizerSpec& spec, const std::vector<WeightDecision>& weights);

}  // namespace onnxtrain
