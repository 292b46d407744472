// You et al., Large Batch Optimization for Deep Learning (LAMB, 2020) and Large Batch Training of Convolutional
// Networks (LARS, 2017); Shazeer & Stern, Adafactor (2018); Jordan et al., Muon (2024), with the rates of Liu et al.,
// Muon is Scalable for LLM Training (2025); Zhao et al., GaLore: Memory-Efficient LLM Training by Gradient Low-Rank
// Projection (2024).
#include <algorithm>
#include <cmath>

#include "frontend/ops/formula.h"
#include "frontend/ops/leading_directions.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

Val Norm(Val x) { return Sqrt(ReduceSum(x * x, {}, false)); }
Val RootMeanSquare(Val x) { return Sqrt(ReduceMean(x * x, {}, false)); }

// Returns a / b where both are positive, else 1: weights that start at zero must be able to change.
Val TrustRatio(Val a, Val b, Val ratio) {
  return Where(Greater(a, 0.0), Where(Greater(b, 0.0), ratio, Number(a, 1)), Number(a, 1));
}

RuleResult Lamb(const RuleContext& c) {
  const AdamMoments moments = UpdateMoments(c, c.grad);
  const Val t = c.step + 1.0;
  const Val m = moments.m / BiasCorrection(c.spec.beta1, t), v = moments.v / BiasCorrection(c.spec.beta2, t);
  Val u = m / (Sqrt(v) + c.spec.eps);
  if (c.weight_decay != 0) u = u + c.param * c.weight_decay;
  const Val p_norm = Norm(c.param), u_norm = Norm(u);
  return {c.param - c.lr * TrustRatio(p_norm, u_norm, p_norm / u_norm) * u, {moments.m, moments.v}};
}

RuleResult Lars(const RuleContext& c) {
  constexpr double kTrust = 0.001;
  const Val p_norm = Norm(c.param), g_norm = Norm(c.grad);
  const Val ratio = p_norm * kTrust / (g_norm + p_norm * c.weight_decay + c.spec.eps);
  const Val g = c.weight_decay == 0 ? c.grad : c.grad + c.param * c.weight_decay;
  const Val buffer = c.state[0] * c.spec.momentum + g * TrustRatio(p_norm, g_norm, ratio);
  return {c.param - c.lr * buffer, {buffer}};
}

bool Factored(const Shape& shape) { return shape.size() >= 2; }

// Factored second moments: means over the last axis and over the second last. A vector keeps all of it in the first.
Shape RowShape(const Shape& param, bool, const OptimizerSpec&) {
  return Factored(param) ? Shape(param.begin(), param.end() - 1) : param;
}
Shape ColumnShape(const Shape& param, bool, const OptimizerSpec&) {
  if (!Factored(param)) return {};
  Shape shape(param.begin(), param.end() - 2);
  shape.push_back(param.back());
  return shape;
}

Val MeanOver(Val x, int axis, bool keepdims) { return ReduceMean(x, {axis}, keepdims); }

// Divides g by the root of its estimated square, R ⊗ C / mean(R), one factor at a time: for an all-zero row the product
// of both factors would underflow, and 0 · ∞ is NaN.
Val Whitened(Val g, Val rows, Val columns) {
  const int rank = rows.rank();
  const Val shares = rows / MeanOver(rows, rank - 1, true);
  Shape tall = rows.shape(), wide = columns.shape();
  tall.push_back(1);
  wide.insert(wide.end() - 1, 1);
  return g * Reshape(Rsqrt(shares), tall) * Reshape(Rsqrt(columns), wide);
}

struct FactoredUpdate {
  Val update;  // of a root mean square of at most 1, with weight decay
  std::vector<Val> state;
};

FactoredUpdate UpdateFactors(const RuleContext& c, Val t) {
  constexpr double kTiny = 1e-30, kThreshold = 1;
  const Val keep = 1.0 - Pow(t, -0.8);
  const Val square = c.grad * c.grad + kTiny;
  std::vector<Val> state = {c.state[0], c.state[1]};
  Val u;
  if (Factored(c.param.shape())) {
    const int last = c.param.rank() - 1;
    state[0] = state[0] * keep + MeanOver(square, last, false) * (1.0 - keep);
    state[1] = state[1] * keep + MeanOver(square, last - 1, false) * (1.0 - keep);
    u = Whitened(c.grad, state[0], state[1]);
  } else {
    state[0] = state[0] * keep + square * (1.0 - keep);
    u = c.grad * Rsqrt(state[0]);
  }
  u = u / Max(RootMeanSquare(u) / kThreshold, Number(u, 1));
  if (c.weight_decay != 0) u = u + c.param * c.weight_decay;
  return {u, state};
}

RuleResult Adafactor(const RuleContext& c) {
  constexpr double kLeastScale = 1e-3;
  const Val t = c.step + 1.0;
  const FactoredUpdate factored = UpdateFactors(c, t);
  const Val rate = Min(c.lr, Rsqrt(t)) * Max(RootMeanSquare(c.param), Number(t, kLeastScale));
  return {c.param - rate * factored.update, factored.state};
}

// Adafactor without relative steps and without scaling by the parameter, as transformers' Trainer has it. AdamW's
// updates have a root mean square near 1, too, so that both share a rate.
RuleResult UnscaledAdafactor(const RuleContext& c) {
  const FactoredUpdate factored = UpdateFactors(c, c.step + 1.0);
  return {c.param - c.lr * factored.update, factored.state};
}

// Matrices but tables have orthogonalized updates; convolutions are matrices of their output channels. A single row or
// column is a vector.
bool IsOrthogonalized(const Shape& param, bool table) {
  return param.size() >= 2 && param[0] > 1 && NumElements(param) > param[0] && !table;
}

// Orthogonalized updates need no second moment: one number stands for it.
Shape SecondMomentShape(const Shape& param, bool table, const OptimizerSpec&) {
  return IsOrthogonalized(param, table) ? Shape{} : param;
}

// Returns a matrix with the singular vectors of x and singular values near 1: five steps of a Newton–Schulz iteration
// whose coefficients grow small values fastest.
Val Orthogonalized(Val x) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeastNorm = 1e-7;
  const bool tall = x.dim(0) > x.dim(1);
  x = x / Max(Norm(x), Number(x, kLeastNorm));
  for (int step = 0; step < 5; ++step) {
    const Val square = MatMul(x, x, tall, !tall);
    const Val factor = square * kB + MatMul(square, square) * kC;
    x = x * kA + (tall ? MatMul(x, factor) : MatMul(factor, x));
  }
  return x;
}

// The scale gives an update the root mean square of an AdamW update, so that both share a rate.
RuleResult Muon(const RuleContext& c) {
  const Shape shape = c.param.shape();
  if (!IsOrthogonalized(shape, c.table)) return UpdateByAdamW(c);
  const double beta = c.spec.momentum;
  const Val momentum = c.state[0] * beta + c.grad * (1 - beta);
  const Val direction = c.grad * (1 - beta) + momentum * beta;
  const int64_t rows = shape[0], columns = NumElements(shape) / rows;
  const Val update = Reshape(Orthogonalized(Reshape(direction, {rows, columns})), shape);
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
  const Val kept = c.weight_decay == 0 ? c.param : c.param * (1.0 - c.lr * c.weight_decay);
  return {kept - c.lr * scale * update, {momentum, c.state[1]}};
}

// Matrices but tables whose sides both exceed the rank have moments of projected gradients.
bool IsProjected(const Shape& param, bool table, const OptimizerSpec& spec) {
  return param.size() == 2 && std::min(param[0], param[1]) > spec.galore.rank && !table;
}

Shape ProjectedShape(const Shape& param, bool table, const OptimizerSpec& spec) {
  if (!IsProjected(param, table, spec)) return param;
  return ProjectsColumns(param) ? Shape{param[0], spec.galore.rank} : Shape{spec.galore.rank, param[1]};
}

Shape ProjectionShape(const Shape& param, bool table, const OptimizerSpec& spec) {
  return IsProjected(param, table, spec) ? Shape{std::min(param[0], param[1]), spec.galore.rank} : Shape{};
}

// The moments stay as they are when the projection changes, as in the paper.
RuleResult GaloreAdamW(const RuleContext& c) {
  const Shape shape = c.param.shape();
  if (!IsProjected(shape, c.table, c.spec)) {
    RuleResult result = UpdateByAdamW(c);
    result.state.push_back(c.state[2]);
    return result;
  }
  const bool columns = ProjectsColumns(shape);
  const Val basis = LeadingDirections(c.grad, c.state[2], c.step, c.spec.galore.every);
  const AdamMoments moments = UpdateMoments(c, columns ? MatMul(c.grad, basis) : MatMul(basis, c.grad, true));
  const Val t = c.step + 1.0;
  const Val root = Sqrt(moments.v) / Sqrt(BiasCorrection(c.spec.beta2, t)) + c.spec.eps;
  const Val direction = moments.m / BiasCorrection(c.spec.beta1, t) / root;
  const Val update = columns ? MatMul(direction, basis, false, true) : MatMul(basis, direction);
  const Val kept = c.weight_decay == 0 ? c.param : c.param * (1.0 - c.lr * c.weight_decay);
  return {kept - c.lr * c.spec.galore.scale * update, {moments.m, moments.v, basis}};
}

}  // namespace

std::span<const OptimizerRule> PerTensorRules() {
  static const auto* rules = new std::vector<OptimizerRule>{
      {"lamb", "betas eps", {{"exp_avg"}, {"exp_avg_sq"}}, Lamb, {.eps = 1e-6}, true},
      {"lars", "momentum eps", {{"momentum"}}, Lars, {.lr = 0.1, .momentum = 0.9}, true},
      {"adafactor", "", {{"row", RowShape}, {"column", ColumnShape}}, Adafactor, {.lr = 1e-2}, true},
      {"adafactor_unscaled", "", {{"row", RowShape}, {"column", ColumnShape}}, UnscaledAdafactor, {}, true},
      {"muon", "momentum betas eps", {{"exp_avg"}, {"exp_avg_sq", SecondMomentShape}}, Muon, {.momentum = 0.95}, true},
      {.name = "galore_adamw",
       .takes = "betas eps galore",
       .state = {{"exp_avg", ProjectedShape}, {"exp_avg_sq", ProjectedShape}, {"projection", ProjectionShape}},
       .update = GaloreAdamW,
       .per_tensor = true},
  };
  return *rules;
}

}  // namespace onnxtrain
