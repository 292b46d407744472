// Update rules. A rule is written once, as an expression over flat tensors: one contiguous group of parameters with its
// gradients and moments. Padding between tensors is zero and stays zero under every rule.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "frontend/ops/builder.h"
#include "optim/optimizer.h"

namespace onnxtrain {

struct RuleContext {
  Val param, grad;           // [n]; grad is unscaled and clipped
  std::vector<Val> state;    // [n] each, as Rule::state names them, zero before the first update
  Val lr;                    // scalar
  Val step;                  // scalar: updates applied before this one
  double weight_decay = 0;   // of this group
  const OptimizerSpec& spec;
};

struct RuleResult {
  Val param;
  std::vector<Val> state;
};

struct Rule {
  std::string_view name;
  std::vector<std::string_view> state;
  RuleResult (*update)(const RuleContext&);
};

// The rule that a specification asks for: sgd with momentum is a rule of its own. Null where there is none.
const Rule* FindRule(const OptimizerSpec& spec);
std::span<const Rule> AllRules();

}  // namespace onnxtrain
