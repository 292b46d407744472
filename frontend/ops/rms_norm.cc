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

TypesOr InferRmsNorm(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  RETURN_IF_ERROR(CheckAxis(c));
  Type statistic = c.in(0);
  const auto from = statistic.shape.begin() + c.attrs.Int("axis");
  RETURN_IF_ERROR(CheckInputShape(c, 1, Shape(from, statistic.shape.end())));
  std::fill(from, statistic.shape.end(), 1);
  return std::vector<Type>{c.in(0), std::move(statistic)};
}

// Halves are squared and averaged in float32.
std::vector<Val> DecomposeRmsNorm(const DecomposeContext& c) {
  const Val x = c.x(0), wide = SizeOf(x.dtype()) < 4 ? Cast(x, DType::kFloat32) : x;
  const Val rstd = Rsqrt(ReduceMean(wide * wide, AxesFrom(c.attrs.Int("axis"), x.rank())) + c.attrs.Float("epsilon"));
  return {Cast(wide * rstd, x.dtype()) * c.x(1), Cast(rstd, x.dtype())};
}

// With n = x·rstd and g = dy·scale: dx = rstd·(g − n·mean(g·n)); what arrives at rstd adds −x·rstd³·mean(drstd).
std::vector<Val> RmsNormGradient(const GradContext& c) {
  const Val x = c.x(0), rstd = c.y(1);
  const std::vector<int64_t> axes = AxesFrom(c.node.attrs.Int("axis"), x.rank());
  const Val normalized = x * rstd;
  Val dx, dscale;
  if (c.dy()) {
    const Val g = c.dy() * c.x(1);
    dx = rstd * (g - normalized * ReduceMean(g * normalized, axes));
    if (c.need(1)) dscale = SumTo(c.dy() * normalized, c.x(1).shape());
  }
  if (c.dy(1)) {
    const double count = static_cast<double>(std::max<int64_t>(1, c.x(1).type().elements()));
    const Val more = normalized * (rstd * rstd * c.dy(1) * (-1 / count));
    dx = dx ? dx + more : more;
  }
  return {dx, dscale};
}

}  // namespace

std::span<const OpRow> RmsNormOps() {
  static const std::vector<OpRow> rows = {
      {.name = "RmsNorm", .inputs = {2, 2}, .outputs = 2, .attrs = {{"axis", int64_t{0}, true}, {"epsilon", 1e-5}},
       .infer = InferRmsNorm, .grad_status = GradStatus::kFormula, .gradient = RmsNormGradient,
       .decompose = DecomposeRmsNorm, .precision = Precision::kFloat32},
  };
  return rows;
}

}  // namespace onnxtrain
