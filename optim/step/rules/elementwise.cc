// Robbins & Monro (1951) and Polyak's momentum; Kingma & Ba, Adam (2015); Loshchilov & Hutter, Decoupled Weight Decay
// Regularization (2019); Tieleman & Hinton, RMSprop (2012); Duchi et al., Adagrad (2011); Chen et al., Symbolic
// Discovery of Optimization Algorithms (2023); Dettmers et al., 8-bit Optimizers via Block-wise Quantization (2022).
// The order of operations is that of PyTorch's torch.optim, so that trajectories agree to rounding.
#include <cmath>

#include "frontend/ops/formula.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

Val WithL2(const RuleContext& c) { return c.weight_decay == 0 ? c.grad : c.grad + c.param * c.weight_decay; }

Val Decayed(const RuleContext& c) { return c.weight_decay == 0 ? c.param : c.param * (1.0 - c.lr * c.weight_decay); }

RuleResult Sgd(const RuleContext& c) {
  const Val g = WithL2(c);
  return {c.param - c.lr * g, {}};
}

// The first gradient is not dampened.
RuleResult Momentum(const RuleContext& c) {
  const Val g = WithL2(c);
  const double dampening = c.spec.dampening;
  const Val part = dampening == 0 ? g : g * Where(Less(c.step, 0.5), Number(c.step, 1), Number(c.step, 1 - dampening));
  const Val buffer = c.state[0] * c.spec.momentum + part;
  const Val direction = c.spec.nesterov ? g + buffer * c.spec.momentum : buffer;
  return {c.param - c.lr * direction, {buffer}};
}

RuleResult AdamStep(const RuleContext& c, Val param, Val grad) {
  const AdamMoments moments = UpdateMoments(c, grad);
  const Val t = c.step + 1.0;
  const Val step_size = c.lr / BiasCorrection(c.spec.beta1, t);
  const Val denominator = Sqrt(moments.v) / Sqrt(BiasCorrection(c.spec.beta2, t)) + c.spec.eps;
  return {param - step_size * (moments.m / denominator), {moments.m, moments.v}};
}

RuleResult Adam(const RuleContext& c) { return AdamStep(c, c.param, WithL2(c)); }

// Returns g divided by the root of its running mean square, and the mean square.
std::pair<Val, Val> Whitened(const RuleContext& c) {
  const Val g = WithL2(c);
  const Val v = c.state[0] * c.spec.beta2 + g * g * (1 - c.spec.beta2);
  return {g / (Sqrt(v) + c.spec.eps), v};
}

RuleResult RmsProp(const RuleContext& c) {
  const auto [u, v] = Whitened(c);
  return {c.param - c.lr * u, {v}};
}

RuleResult RmsPropMomentum(const RuleContext& c) {
  const auto [u, v] = Whitened(c);
  const Val buffer = c.state[1] * c.spec.momentum + u;
  return {c.param - c.lr * buffer, {v, buffer}};
}

RuleResult Adagrad(const RuleContext& c) {
  const Val g = WithL2(c);
  const Val sum = c.state[0] + g * g;
  return {c.param - c.lr * (g / (Sqrt(sum) + c.spec.eps)), {sum}};
}

RuleResult Lion(const RuleContext& c) {
  const OptimizerSpec& s = c.spec;
  const Val m = c.state[0];
  const Val direction = Unary("Sign", m * s.beta1 + c.grad * (1 - s.beta1));
  return {Decayed(c) - c.lr * direction, {m * s.beta2 + c.grad * (1 - s.beta2)}};
}

Shape ScalarShape(const Shape&, bool, const OptimizerSpec&) { return {}; }

// Defazio et al., The Road Less Scheduled (2024). Gradients are those of y = (1 − β₁)·z + β₁·x, the parameter; z is
// updated, and x, the average of z with weights of the square of the greatest rate so far, is what the model becomes.
RuleResult ScheduleFreeAdamW(const RuleContext& c) {
  constexpr double kTiny = 1e-37;
  const OptimizerSpec& s = c.spec;
  const Val z = Where(Less(c.step, 0.5), c.param, c.state[0]);
  const Val v = c.state[1] * s.beta2 + c.grad * c.grad * (1 - s.beta2);
  const Val root = Sqrt(v / BiasCorrection(s.beta2, c.step + 1.0)) + s.eps;
  const Val direction = c.weight_decay == 0 ? c.grad / root : c.grad / root + c.param * c.weight_decay;
  const Val rate = Max(c.lr, c.state[3]), sum = c.state[2] + rate * rate;
  const Val share = rate * rate / Max(sum, kTiny);
  const Val next = z - c.lr * direction;
  const Val average = c.average * (1.0 - share) + next * share;
  return {next * (1 - s.beta1) + average * s.beta1, {next, v, sum, rate}, average};
}

// Codes have blocks of their own in every weight, so that the rules run on each parameter.
std::vector<RuleState> EightBitMoments() {
  return {{"exp_avg", nullptr, StateFormat::kDynamic}, {"exp_avg_sq", nullptr, StateFormat::kUnsignedDynamic}};
}

}  // namespace

RuleResult UpdateByAdamW(const RuleContext& c) { return AdamStep(c, Decayed(c), c.grad); }

std::span<const OptimizerRule> ElementwiseRules() {
  static const auto* rules = new std::vector<OptimizerRule>{
      {"sgd", "momentum", {}, Sgd, {.lr = 0.05}},
      {"sgd_momentum", "momentum", {{"momentum"}}, Momentum, {.lr = 0.01}},
      {"adam", "betas eps", {{"exp_avg"}, {"exp_avg_sq"}}, Adam, {}},
      {"adamw", "betas eps", {{"exp_avg"}, {"exp_avg_sq"}}, UpdateByAdamW, {}},
      {.name = "adamw8bit",
       .takes = "betas eps",
       .state = EightBitMoments(),
       .update = UpdateByAdamW,
       .per_tensor = true,
       .in_blocks = true},
      {"rmsprop", "momentum betas eps", {{"square_avg"}}, RmsProp, {.beta2 = 0.99}},
      {"rmsprop_momentum", "momentum betas eps", {{"square_avg"}, {"momentum"}}, RmsPropMomentum, {.beta2 = 0.99}},
      {"adagrad", "eps", {{"sum"}}, Adagrad, {.lr = 1e-2, .eps = 1e-10}},
      {"lion", "betas", {{"exp_avg"}}, Lion, {.lr = 1e-4, .beta2 = 0.99}},
      {.name = "schedule_free_adamw",
       .takes = "betas eps",
       .state = {{"z"}, {"exp_avg_sq"}, {"weight_sum", ScalarShape}, {"rate", ScalarShape}},
       .update = ScheduleFreeAdamW,
       .per_tensor = true,
       .averages = true},
      {.name = "lion8bit",
       .takes = "betas",
       .state = {EightBitMoments()[0]},
       .update = Lion,
       .defaults = {.lr = 1e-4, .beta2 = 0.99},
       .per_tensor = true,
       .in_blocks = true},
  };
  return *rules;
}

}  // namespace onnxtrain
