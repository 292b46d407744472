#include "optim/rules/rule.h"

#include <cmath>

namespace onnxtrain {
namespace {

bool HasMomentum(const OptimizerSpec& spec, const Rule& rule) {
  return (std::isnan(spec.momentum) ? rule.defaults.momentum : spec.momentum) != 0;
}

const Rule* Find(std::string_view name) {
  for (std::span<const Rule> family : {ElementwiseRules(), PerTensorRules()}) {
    for (const Rule& rule : family) {
      if (rule.name == name) return &rule;
    }
  }
  return nullptr;
}

}  // namespace

const Rule* FindRule(const OptimizerSpec& spec) {
  const Rule* rule = Find(spec.rule);
  if (rule == nullptr || !HasMomentum(spec, *rule)) return rule;
  const Rule* with = Find(spec.rule + "_momentum");
  return with == nullptr ? rule : with;
}

OptimizerSpec Resolved(OptimizerSpec spec) {
  const RuleDefaults& d = FindRule(spec)->defaults;
  struct Number {
    double* value;
    double otherwise;
  };
  for (const Number& n : {Number{&spec.momentum, d.momentum}, Number{&spec.beta1, d.beta1}, Number{&spec.beta2, d.beta2},
                          Number{&spec.eps, d.eps}}) {
    if (std::isnan(*n.value)) *n.value = n.otherwise;
  }
  return spec;
}

std::vector<const Rule*> NamedRules() {
  std::vector<const Rule*> rules;
  for (std::span<const Rule> family : {ElementwiseRules(), PerTensorRules()}) {
    for (const Rule& rule : family) {
      if (!rule.name.ends_with("_momentum")) rules.push_back(&rule);
    }
  }
  return rules;
}

}  // namespace onnxtrain
