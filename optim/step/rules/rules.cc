#include "optim/step/rules/rule.h"

#include <cmath>

#include "frontend/base/strings.h"
#include "frontend/ops/dynamic_code.h"
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

// Smaller tensors take little memory, and their few blocks would lose the most precision.
constexpr int64_t kLeastQuantized = 4096;

std::vector<StoredState> StoreAs(const RuleState& state, bool quantized, const Shape& shape, DType dtype) {
  if (!quantized) return {{std::string(state.name), {dtype, shape}}};
  return {{std::string(state.name), {DType::kUInt8, shape}},
          {StrCat(state.name, "_scale"), {dtype, {DynamicBlocks(NumElements(shape))}}, kDynamicBlock}};
}

}  // namespace

bool RuleState::IsQuantized(const OptimizerSpec& spec, const std::string& weight, const Shape& param) const {
  return format != StateFormat::kFloat && NumElements(param) >= kLeastQuantized && !spec.tables.contains(weight);
}

std::vector<StoredState> RuleState::Stored(const OptimizerSpec& spec, const std::string& weight, const Shape& param,
                                           DType dtype) const {
  return StoreAs(*this, IsQuantized(spec, weight, param), Of(spec, weight, param), dtype);
}

std::vector<StoredState> RuleState::StoredPart(const OptimizerSpec& spec, const std::string& weight, const Shape& param,
                                               int64_t elements, DType dtype) const {
  return StoreAs(*this, IsQuantized(spec, weight, param), {elements}, dtype);
}

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

bool KeepsAverage(const OptimizerSpec& spec) {
  const OptimizerRule* rule = FindRule(spec);
  return spec.ema_decay > 0 || (rule != nullptr && rule->averages);
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
