// ScatterElements: a copy of x with updates written or reduced into places along an axis.
//
// Several updates of one place: "none" keeps the last of them along the axis, the others reduce x and all of them.
#include <cmath>
#include <map>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/indexing.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

struct Reduction {
  double (*floats)(double old, double update);
  int64_t (*ints)(int64_t old, int64_t update);
};

const std::map<std::string_view, Reduction>& Reductions() {
  static const auto* reductions = new std::map<std::string_view, Reduction>{
      {"none", {[](double, double u) { return u; }, [](int64_t, int64_t u) { return u; }}},
      {"add", {[](double x, double u) { return x + u; }, WrapAdd}},
      {"mul", {[](double x, double u) { return x * u; }, WrapMul}},
      {"max",
       {[](double x, double u) { return std::isnan(x) || x > u ? x : u; },
        [](int64_t x, int64_t u) { return std::max(x, u); }}},
      {"min",
       {[](double x, double u) { return std::isnan(x) || x < u ? x : u; },
        [](int64_t x, int64_t u) { return std::min(x, u); }}},
  };
  return *reductions;
}

TypesOr ScatterTypes(const TypeContext& c) {
  const std::string reduction = c.attrs.String("reduction");
  if (Reductions().count(reduction) == 0)
    return Invalid("reduction '", reduction, "' is none of none, add, mul, min, max");
  if (reduction != "none") RETURN_IF_ERROR(RequireNumeric(c, 0));
  RETURN_IF_ERROR(RequireDType(c, 1, DType::kInt64));
  RETURN_IF_ERROR(RequireSameDType(c, 0, 2));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  RETURN_IF_ERROR(CheckElementsIndex(c.in(0).shape, c.in(1).shape, axis));
  RETURN_IF_ERROR(RequireShape(c, 2, c.in(1).shape));
  return SameAsInput(c);
}

// --- gradients

Val ScatterInto(const GradContext& c, Val x, Val updates, std::string reduction) {
  return c.b.Op("ScatterElements", {x, c.x(1), updates},
                {{"axis", c.node.attrs.Int("axis")}, {"reduction", std::move(reduction)}});
}

// Gathers the elements of v at the index.
Val Pointed(const GradContext& c, Val v) {
  return c.b.Op("GatherElements", {v, c.x(1)}, {{"axis", c.node.attrs.Int("axis")}});
}

// The position along the axis of each element of the index.
Val Positions(const GradContext& c) {
  const int64_t axis = c.node.attrs.Int("axis");
  Shape along(c.x(1).rank(), 1);
  along[axis] = c.x(1).shape()[axis];
  const Val ones = Expand(c.b.Scalar(DType::kInt64, 1), std::move(along));
  const Val counted = c.b.Op("CumSum", {ones}, {{"axis", axis}, {"exclusive", int64_t{1}}});
  return Expand(counted, c.x(1).shape());
}

// The last update of a place has its gradient; x where nothing was written has its own.
std::vector<Val> WriteGrad(const GradContext& c) {
  std::vector<Val> grads(3);
  if (c.need(0)) grads[0] = ScatterInto(c, c.dy(), Expand(Number(c.dy(), 0), c.x(1).shape()), "none");
  if (!c.need(2)) return grads;
  const Val mine = Positions(c), nothing = Expand(Number(mine, 0), c.x(0).shape());
  grads[2] = Masked(Equal(Pointed(c, ScatterInto(c, nothing, mine, "max")), mine), Pointed(c, c.dy()));
  return grads;
}

std::vector<Val> AddGrad(const GradContext& c) { return {c.dy(), Val(), Pointed(c, c.dy())}; }

// The product of the other factors of a place: `product` is that of its factors that are not 0, `zeros` counts the
// others.
Val Others(Val factor, Val product, Val zeros) {
  const Val zero = Equal(factor, 0), filled = Where(zero, Number(factor, 1), factor);
  return Where(zero, Masked(Equal(zeros, 1), product), Masked(Equal(zeros, 0), product / filled));
}

std::vector<Val> MulGrad(const GradContext& c) {
  const Val x = c.x(0), u = c.x(2);
  auto filled = [](Val v) { return Where(Equal(v, 0), Number(v, 1), v); };
  auto counted = [](Val v) { return Cast(Equal(v, 0), v.dtype()); };
  const Val product = ScatterInto(c, filled(x), filled(u), "mul"),
            zeros = ScatterInto(c, counted(x), counted(u), "add");
  return {c.dy() * Others(x, product, zeros), Val(),
          Pointed(c, c.dy()) * Others(u, Pointed(c, product), Pointed(c, zeros))};
}

// Shared equally between all that equal the extremum.
std::vector<Val> ExtremumGrad(const GradContext& c) {
  const Val x = c.x(0), u = c.x(2);
  const Val x_wins = Equal(x, c.y()), u_wins = Equal(u, Pointed(c, c.y()));
  const Val share = c.dy() / ScatterInto(c, Cast(x_wins, x.dtype()), Cast(u_wins, x.dtype()), "add");
  return {Masked(x_wins, share), Val(), Masked(u_wins, Pointed(c, share))};
}

std::vector<Val> ScatterGrad(const GradContext& c) {
  static const auto* formulas = new std::map<std::string_view, Gradient>{
      {"none", WriteGrad}, {"add", AddGrad}, {"mul", MulGrad}, {"max", ExtremumGrad}, {"min", ExtremumGrad}};
  return formulas->at(c.node.attrs.String("reduction"))(c);
}

std::vector<HostTensor> EvalScatter(const EvalContext& c) {
  const HostTensor &x = *c.inputs[0], &updates = *c.inputs[2];
  const Reduction& reduction = Reductions().at(c.attrs.String("reduction"));
  HostTensor y = x.Clone();
  WalkElements(x.shape(), *c.inputs[1], c.attrs.Int("axis"), [&](int64_t i, int64_t at) {
    if (IsFloat(x.dtype())) {
      y.Set(at, reduction.floats(y.At(at), updates.At(i)));
    } else {
      y.SetInt(at, reduction.ints(y.IntAt(at), updates.IntAt(i)));
    }
  });
  return {std::move(y)};
}

}  // namespace

std::span<const OpRow> ScatterOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "ScatterElements",
       .inputs = {3, 3},
       .attrs = {{"axis", int64_t{0}}, {"reduction", std::string("none")}},
       .infer = ScatterTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = ScatterGrad,
       .evaluate = EvalScatter},
  };
  return *rows;
}

}  // namespace onnxtrain
