#include "optim/parallel/whole_state.h"

#include <algorithm>
#include <map>

namespace onnxtrain {
namespace {

bool IsStatistic(const PreparedModel& whole, const std::string& name) {
  return std::ranges::any_of(whole.model.state_updates, [&](const StateUpdate& u) { return u.state == name; });
}

}  // namespace

std::vector<WholeTensor> ListWholeState(const PreparedModel& whole, const std::function<int(const std::string&)>& owner,
                                        const OptimizerSpec& optimizer, DType dtype) {
  std::vector<WholeTensor> tensors;
  std::map<std::string, Shape> trained;
  for (const WeightDecision& w : whole.weights) {
    const bool statistic = IsStatistic(whole, w.name);
    if (w.trained) trained[w.name] = w.type.shape;
    if (w.trained || statistic)
      tensors.push_back({w.name, true, {w.trained ? dtype : w.type.dtype, w.type.shape}, owner(w.name)});
  }
  for (const auto& [weight, shape] : trained) {
    const int updates = owner(weight);
    if (optimizer.ema_decay > 0) tensors.push_back({MomentName(kAverage, weight), true, {dtype, shape}, updates});
    for (const RuleState& state : FindRule(optimizer)->state)
      tensors.push_back({MomentName(state.name, weight),
                         false,
                         {dtype, state.shape == nullptr ? shape : state.shape(shape)},
                         updates});
  }
  return tensors;
}

}  // namespace onnxtrain
