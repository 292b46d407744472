#include "optim/step/groups.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/config/weight_globs.h"

namespace onnxtrain {
namespace {

std::string GroupName(const UpdateRule& rule) {
  return StrCat(rule.weight_decay != 0 ? "decay" : "plain", rule.lr_factor != 1 ? StrCat("×", rule.lr_factor) : "");
}

}  // namespace

absl::StatusOr<std::vector<WeightGroup>> GroupWeights(const OptimizerSpec& spec,
                                                      const std::vector<WeightDecision>& weights) {
  const bool by_glob = spec.weight_decay != 0 && spec.no_decay != "auto" && spec.no_decay != "none";
  WeightGlobs no_decay("no_decay", by_glob ? std::vector<std::string>{spec.no_decay} : std::vector<std::string>{});
  const auto decays = [&](const WeightDecision& w) {
    if (spec.weight_decay == 0 || spec.no_decay == "none") return spec.weight_decay != 0;
    if (spec.no_decay == "auto") return w.type.rank() > 1 && !w.name.ends_with("bias") && !w.alias.ends_with("bias");
    return no_decay.Match(w) == nullptr;
  };
  // Decaying weights first, then by rate.
  std::map<UpdateRule, WeightGroup, std::greater<>> groups;
  size_t with_factor = 0;
  for (const WeightDecision& w : weights) {
    const auto factor = spec.lr_factors.find(w.name);
    with_factor += factor != spec.lr_factors.end();
    const bool decay = decays(w);
    if (!w.trained) continue;
    const UpdateRule rule{decay ? spec.weight_decay : 0, factor != spec.lr_factors.end() ? factor->second : 1};
    WeightGroup& group = groups[rule];
    group.name = GroupName(rule);
    group.rule = rule;
    group.members.push_back(&w);
  }
  RETURN_IF_ERROR(no_decay.CheckAllMatched());
  if (with_factor != spec.lr_factors.size())
    return Invalid("a learning rate is given for a weight that the model does not have");
  std::vector<WeightGroup> out;
  for (auto& [rule, group] : groups) out.push_back(std::move(group));
  return out;
}

}  // namespace onnxtrain
