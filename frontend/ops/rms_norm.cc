// Root mean square normalization (Zhang and Sennrich, 2019, arXiv:1910.07467).
#include <numeric>

#include "frontend/ops/formula.h"
#include "frontend/ops/nn_rules.h"

namespace onnxtrain {
namespace {

std::vector<int64_t> AxesFrom(int64_t axis, int rank) {
  std::vector<int64_t> axes(rank - axis);
  std::iota(axes.begin(), axes.end(), axis);
  return axes;
}

Shape StatisticShape(Shape x, int64_t axis) {
  std::fill(x.begin() + axis, x.end(), 1);
  return x;
}

TypesOr InferRmsNorm(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  RETURN_IF_ERROR(CheckAxis(c));
  const Type& x = c.in(0);
  const int64_t axis = c.attrs.Int("axis");
  RETURN_IF_ERROR(CheckInputShape(c, 1, Shape(x.shape.begin() + axis, x.shape.end())));
  return std::vector<Type>{x, {x.dtype, StatisticShape(x.shape, axis)}};
}

TypesOr InferRmsNormGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 4));
  RETURN_IF_ERROR(CheckAxis(c));
  const Type& x = c.in(1);
  const int64_t axis = c.attrs.Int("axis");
  RETURN_IF_ERROR(CheckInputShape(c, 0, x.shape));
  RETURN_IF_ERROR(CheckInputShape(c, 2, Shape(x.shape.begin() + axis, x.shape.end())));
  RETURN_IF_ERROR(CheckInputShape(c, 3, StatisticShape(x.shape, axis)));
  return std::vector<Type>{x, c.in(2)};
}

// Half precision is squared, averaged and summed in float32.
Val Wide(Val x) { return DTypeSize(x.dtype()) < 4 ? Cast(x, DType::kFloat32) : x; }

std::vector<Val> DecomposeRmsNorm(const DecomposeContext& c) {
  const Val x = c.x(0), wide = Wide(x);
  const Val rstd = Rsqrt(ReduceMean(wide * wide, AxesFrom(c.attrs.Int("axis"), x.rank())) + c.attrs.Float("epsilon"));
  return {Cast(wide * rstd, x.dtype()) * c.x(1), Cast(rstd, x.dtype())};
}

// With n = x·rstd and g = dy·scale: dx = rstd·(g − n·mean(g·n)).
std::vector<Val> DecomposeRmsNormGrad(const DecomposeContext& c) {
  const Val dy = Wide(c.x(0)), scale = Wide(c.x(2)), rstd = Wide(c.x(3)), n = Wide(c.x(1)) * rstd, g = dy * scale;
  const Val dx = rstd * (g - n * ReduceMean(g * n, AxesFrom(c.attrs.Int("axis"), n.rank())));
  return {Cast(dx, c.x(0).dtype()), Cast(SumTo(dy * n, scale.shape()), c.x(0).dtype())};
}

// The gradient of rstd adds −x·rstd³·mean(drstd).
std::vector<Val> RmsNormGradient(const GradContext& c) {
  const Val x = c.x(0), rstd = c.y(1);
  Val dx, dscale;
  if (c.dy()) {
    const std::vector<Val> grads =
        c.b.Ops("RmsNormGrad", {c.dy(), x, c.x(1), rstd}, {{"axis", c.node.attrs.Int("axis")}});
    dx = grads[0];
    dscale = grads[1];
  }
  if (c.dy(1)) {
    const double count = static_cast<double>(std::max<int64_t>(1, c.x(1).type().elements()));
    const Val more = x * (rstd * rstd * rstd * c.dy(1) * (-1 / count));
    dx = dx ? dx + more : more;
  }
  return {dx, dscale};
}

}  // namespace

std::span<const OpRow> RmsNormOps() {
  const AttrSpec axis = {"axis", int64_t{0}, true};
  static const std::vector<OpRow> rows = {
      {.name = "RmsNorm",
       .inputs = {2, 2},
       .outputs = 2,
       .attrs = {axis, {"epsilon", 1e-5}},
       .infer = InferRmsNorm,
       .grad_status = GradStatus::kFormula,
       .gradient = RmsNormGradient,
       .decompose = DecomposeRmsNorm,
       .precision = Precision::kFloat32,
       .init = {.roles = {WeightRole::kData, WeightRole::kNormScale}}},
      {.name = "RmsNormGrad",
       .inputs = {4, 4},
       .outputs = 2,
       .attrs = {axis},
       .infer = InferRmsNormGrad,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeRmsNormGrad,
       .precision = Precision::kFloat32,
       .is_gradient = true},
  };
  return rows;
}

}  // namespace onnxtrain
