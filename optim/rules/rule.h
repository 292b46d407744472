// Update rules. A rule is written once, as an expression over tensors. Most act on every element alike and are run on flat
// tensors: one contiguous group of parameters with its gradients and moments; padding between tensors is zero and stays zero
// under every such rule. Those with terms of a whole tensor (norms, factored moments) are run on each parameter by itself.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "frontend/ops/builder.h"
#include "optim/optimizer.h"

namespace onnxtrain {

struct RuleContext {
  Val param, grad;           // [n], or of the parameter's shape; grad is unscaled and clipped
  std::vector<Val> state;    // as OptimizerRule::state names them, zero before the first update
  Val lr;                    // scalar
  Val step;                  // scalar: updates applied before this one
  double weight_decay = 0;   // of this group
  const OptimizerSpec& spec;  // resolved
};

struct RuleResult {
  Val param;
  std::vector<Val> state;
};

struct RuleState {
  std::string_view name;
  Shape (*shape)(const Shape& param) = nullptr;  // null: that of the parameter
};

struct RuleDefaults {
  double lr = 0;  // 0: no default of its own
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

struct OptimizerRule {
  std::string_view name;
  std::string_view takes;  // which of momentum, betas, eps it reads, separated by blanks
  std::vector<RuleState> state;
  RuleResult (*update)(const RuleContext&);
  RuleDefaults defaults;
  bool per_tensor = false;
};

// The rule that a specification asks for: sgd and rmsprop with momentum are rules of their own. Null where there is none.
const OptimizerRule* FindRule(const OptimizerSpec& spec);
// Every number that is kRuleDefault replaced by the rule's, which must exist.
OptimizerSpec Resolved(OptimizerSpec spec);

// The rules by their names for people: without those that momentum makes.
std::vector<const OptimizerRule*> NamedRules();

std::span<const OptimizerRule> ElementwiseRules();
std::span<const OptimizerRule> PerTensorRules();

}  // namespace onnxtrain
