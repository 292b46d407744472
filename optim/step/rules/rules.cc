#include "optim/step/rules/rule.h"

#include <cmath>

#include "optim/step/onnx_functions.h"

namespace onnxtrain {
namespace {

bool HasMomentum(const OptimizerSpec& spec, const OptimizerRule& rule) {
  return (std::isnan(spec.momentum) ? rule.defaults.momentum : spec.momentum) != 0;
}

const OptimizerRule* Find(std::string_view name) {
  for (std::span<const OptimizerRule> family : {ElementwiseRules(), PerTensorRules()}) {
    for (const OptimizerRule& rule : family) {
      if (rule.name == name) return &rule;
    }
  }
  return nullptr;
}

}  // namespace

const OptimizerRule* FindRule(const OptimizerSpec& spec) {
  if (spec.onnx_rule != nullptr) return &spec.onnx_rule->rule();
  const OptimizerRule* rule = Find(spec.rule);
  if (rule == nullptr || !HasMomentum(spec, *rule)) return rule;
  const OptimizerRule* with = Find(spec.rule + "_momentum");
  return with == nullptr ? rule : with;
}

OptimizerSpec Resolved(OptimizerSpec spec) {
  const OptimizerRule* rule = FindRule(spec);
  const RuleDefaults d = rule == nullptr ? RuleDefaults() : rule->defaults;
  struct Number {
    double* value;
    double otherwise;
  };
  for (const Number& n : {Number{&spec.momentum, d.momentum}, Number{&spec.beta1, d.beta1},
                          Number{&spec.beta2, d.beta2}, Number{&spec.eps, d.eps}}) {
    if (std::isnan(*n.value)) *n.value = n.otherwise;
  }
  return spec;
}

std::vector<const OptimizerRule*> NamedRules() {
  std::vector<const OptimizerRule*> rules;
  for (std::span<const OptimizerRule> family : {ElementwiseRules(), PerTensorRules()}) {
    for (const OptimizerRule& rule : family) {
      if (!rule.name.ends_with("_momentum")) rules.push_back(&rule);
    }
  }
  return rules;
}

}  // namespace onnxtrain
