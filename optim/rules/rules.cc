// Kingma & Ba, Adam (2015); Loshchilov & Hutter, Decoupled Weight Decay Regularization (2019). The order of operations is
// that of PyTorch's torch.optim, so that trajectories agree to rounding.
#include <cmath>

#include "optim/rules/rule.h"

namespace onnxtrain {
namespace {

Val WithL2(const RuleContext& c) { return c.weight_decay == 0 ? c.grad : c.grad + c.param * c.weight_decay; }

RuleResult Sgd(const RuleContext& c) {
  const Val g = WithL2(c);
  return {c.param - c.lr * g, {}};
}

RuleResult Momentum(const RuleContext& c) {
  const Val g = WithL2(c);
  const Val buffer = c.state[0] * c.spec.momentum + g;
  const Val direction = c.spec.nesterov ? g + buffer * c.spec.momentum : buffer;
  return {c.param - c.lr * direction, {buffer}};
}

// 1 − βᵗ without the cancellation that float32 would suffer for β near 1.
Val BiasCorrection(double beta, Val t) { return -t.b().Op("Expm1", {t * std::log(beta)}); }

RuleResult AdamStep(const RuleContext& c, Val param, Val grad) {
  const OptimizerSpec& s = c.spec;
  const Val t = c.step + 1.0;
  const Val m = c.state[0] * s.beta1 + grad * (1 - s.beta1);
  const Val v = c.state[1] * s.beta2 + grad * grad * (1 - s.beta2);
  const Val step_size = c.lr / BiasCorrection(s.beta1, t);
  const Val denominator = Sqrt(v) / Sqrt(BiasCorrection(s.beta2, t)) + s.eps;
  return {param - step_size * (m / denominator), {m, v}};
}

RuleResult Adam(const RuleContext& c) { return AdamStep(c, c.param, WithL2(c)); }

RuleResult AdamW(const RuleContext& c) {
  const Val param = c.weight_decay == 0 ? c.param : c.param * (1.0 - c.lr * c.weight_decay);
  return AdamStep(c, param, c.grad);
}

const Rule kRules[] = {
    {"sgd", {}, Sgd},
    {"momentum", {"momentum"}, Momentum},
    {"adam", {"exp_avg", "exp_avg_sq"}, Adam},
    {"adamw", {"exp_avg", "exp_avg_sq"}, AdamW},
};

}  // namespace

const Rule* FindRule(const OptimizerSpec& spec) {
  const std::string_view name = spec.rule == "sgd" && spec.momentum != 0 ? "momentum" : std::string_view(spec.rule);
  for (const Rule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

std::span<const Rule> AllRules() { return kRules; }

}  // namespace onnxtrain
