// Gather, GatherElements, ScatterElements and their gradients, and TopK.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/status/status.h"
#include "frontend/base/status.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

// Resolves an index into an axis of extent n: indices in [−n, 0) count from the end, those outside [−n, n) are clamped.
inline int64_t ResolveIndex(int64_t index, int64_t n) {
  return std::clamp<int64_t>(index < 0 ? index + n : index, 0, n - 1);
}

// Calls f(i, offset in x) for each element i of `index`.
template <typename F>
void WalkElements(const Shape& x, const HostTensor& index, int64_t axis, F f) {
  const Shape strides = Strides(x);
  Shape others = strides;
  others[axis] = 0;
  Walk<1>(index.shape(), {others}, {0}, [&](int64_t i, const std::array<int64_t, 1>& at) {
    f(i, at[0] + ResolveIndex(index.IntAt(i), x[axis]) * strides[axis]);
  });
}

// Fails if the axis is empty but the index is not, since then no index can be clamped.
absl::Status CheckIndexable(const Shape& x, int64_t axis, const Shape& index) {
  if (x[axis] > 0 || NumElements(index) == 0) return absl::OkStatus();
  return Invalid("axis ", axis, " of ", ToString(x), " is empty, but the index is not: ", ToString(index));
}

// Checks an index of GatherElements or ScatterElements: it must have the rank of x and, along every axis except `axis`,
// must not be larger than x.
absl::Status CheckElementsIndex(const Shape& x, const Shape& index, int64_t axis) {
  RETURN_IF_ERROR(CheckIndexable(x, axis, index));
  bool ok = x.size() == index.size();
  for (size_t i = 0; ok && i < x.size(); ++i) ok = static_cast<int64_t>(i) == axis || index[i] <= x[i];
  return ok ? absl::OkStatus() : Invalid("an index of shape ", ToString(index), " does not fit into ", ToString(x));
}

// Returns the shape of the output of Gather: that of x with the axis replaced by the shape of the index.
Shape GatheredShape(const Shape& x, const Shape& index, int64_t axis) {
  Shape shape(x.begin(), x.begin() + axis);
  shape.insert(shape.end(), index.begin(), index.end());
  shape.insert(shape.end(), x.begin() + axis + 1, x.end());
  return shape;
}

TypesOr GatherTypes(const TypeContext& c) {
  const Type &x = c.in(0), &index = c.in(1);
  RETURN_IF_ERROR(RequireDType(c, 1, DType::kInt64));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, x.rank()));
  RETURN_IF_ERROR(CheckIndexable(x.shape, axis, index.shape));
  return std::vector<Type>{{x.dtype, GatheredShape(x.shape, index.shape, axis)}};
}

TypesOr GatherGradTypes(const TypeContext& c) {
  const Type &dy = c.in(0), &index = c.in(1);
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(RequireDType(c, 1, DType::kInt64));
  ASSIGN_OR_RETURN(Shape shape, ShapeAttr(c, "input_shape"));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, static_cast<int>(shape.size())));
  RETURN_IF_ERROR(CheckIndexable(shape, axis, index.shape));
  RETURN_IF_ERROR(RequireShape(c, 0, GatheredShape(shape, index.shape, axis)));
  return std::vector<Type>{{dy.dtype, std::move(shape)}};
}

TypesOr GatherElementsTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireDType(c, 1, DType::kInt64));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  RETURN_IF_ERROR(CheckElementsIndex(c.in(0).shape, c.in(1).shape, axis));
  return std::vector<Type>{{c.in(0).dtype, c.in(1).shape}};
}

TypesOr GatherElementsGradTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(RequireDType(c, 1, DType::kInt64));
  RETURN_IF_ERROR(RequireShape(c, 0, c.in(1).shape));
  ASSIGN_OR_RETURN(Shape shape, ShapeAttr(c, "input_shape"));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, static_cast<int>(shape.size())));
  RETURN_IF_ERROR(CheckElementsIndex(shape, c.in(1).shape, axis));
  return std::vector<Type>{{c.in(0).dtype, std::move(shape)}};
}

// Sets the gradient of the padding row to 0, since PyTorch does not train the row of a table that represents padding.
Val ZeroPadding(const GradContext& c) {
  const int64_t padding = c.node.attrs.Int("padding_idx");
  if (padding < 0) return c.dy();
  Shape along = c.x(1).shape();
  along.resize(c.dy().rank() - c.node.attrs.Int("axis"), 1);
  return Where(Reshape(Equal(c.x(1), static_cast<double>(padding)), std::move(along)), Number(c.dy(), 0), c.dy());
}

// Applies the scatter-add `op`, the gradient of the gather. Both are linear, and each is the gradient of the other.
std::vector<Val> Scatter(const GradContext& c, std::string_view op, Val dy) {
  Attrs attrs{{"axis", c.node.attrs.Int("axis")}, {"input_shape", c.x(0).shape()}};
  return {c.b.Op(op, {dy, c.x(1)}, std::move(attrs)), Val()};
}
std::vector<Val> Regather(const GradContext& c, std::string_view op) {
  return {c.b.Op(op, {c.dy(), c.x(1)}, {{"axis", c.node.attrs.Int("axis")}}), Val()};
}

// Calls f(offset in the result, offset in x) for each gathered element.
template <typename F>
void WalkGather(const Shape& x, const HostTensor& index, int64_t axis, F f) {
  const Shape strides = Strides(x), index_strides = Strides(index.shape());
  const Shape shape = GatheredShape(x, index.shape(), axis);
  Shape in_x = GatheredShape(strides, Shape(index.shape().size(), 0), axis);
  Shape in_index(shape.size(), 0);
  std::copy(index_strides.begin(), index_strides.end(), in_index.begin() + axis);
  Walk<2>(shape, {in_x, in_index}, {0, 0}, [&](int64_t i, const std::array<int64_t, 2>& at) {
    f(i, at[0] + ResolveIndex(index.IntAt(at[1]), x[axis]) * strides[axis]);
  });
}

// `walk` is WalkGather or WalkElements.
template <typename W>
std::vector<HostTensor> Gathered(const EvalContext& c, W walk) {
  HostTensor y(c.output_types[0]);
  walk(c.inputs[0]->shape(), *c.inputs[1], c.attrs.Int("axis"),
       [&](int64_t i, int64_t at) { CopyElement(*c.inputs[0], at, &y, i); });
  return {std::move(y)};
}
template <typename W>
std::vector<HostTensor> Scattered(const EvalContext& c, W walk) {
  const Type& type = c.output_types[0];
  std::vector<double> sums(type.elements(), 0);
  walk(type.shape, *c.inputs[1], c.attrs.Int("axis"), [&](int64_t i, int64_t at) { sums[at] += c.inputs[0]->At(i); });
  return {HostTensor::FromDoubles(type, sums)};
}

constexpr auto kWalkGather = [](auto&&... args) { WalkGather(args...); };
constexpr auto kWalkElements = [](auto&&... args) { WalkElements(args...); };

OpRow IndexRow(std::string_view name, bool scatters, TypeRule infer, Gradient gradient, Evaluate evaluate,
               EmitFn emit) {
  OpRow row{.name = name,
            .inputs = {2, 2},
            .attrs = {{"axis", int64_t{0}}},
            .infer = infer,
            .grad_status = GradStatus::kFormula,
            .gradient = gradient,
            .evaluate = evaluate,
            .emit = emit};
  row.is_gradient = scatters;
  row.copies = !scatters;
  if (name == "Gather") {
    row.init.roles = {WeightRole::kTable};
    row.attrs.push_back({"padding_idx", int64_t{-1}});
  }
  if (scatters) row.attrs.push_back({"input_shape", std::vector<int64_t>{}, true});
  return row;
}

}  // namespace

std::span<const OpRow> IndexOps() {
  static const auto* rows = new std::vector<OpRow>{
      IndexRow(
          "Gather", false, GatherTypes, [](const GradContext& c) { return Scatter(c, "GatherGrad", ZeroPadding(c)); },
          [](const EvalContext& c) { return Gathered(c, kWalkGather); }, EmitGather),
      IndexRow(
          "GatherGrad", true, GatherGradTypes, [](const GradContext& c) { return Regather(c, "Gather"); },
          [](const EvalContext& c) { return Scattered(c, kWalkGather); }, EmitGatherGrad),
      IndexRow(
          "GatherElements", false, GatherElementsTypes,
          [](const GradContext& c) { return Scatter(c, "GatherElementsGrad", c.dy()); },
          [](const EvalContext& c) { return Gathered(c, kWalkElements); }, EmitSame),
      IndexRow(
          "GatherElementsGrad", true, GatherElementsGradTypes,
          [](const GradContext& c) { return Regather(c, "GatherElements"); },
          [](const EvalContext& c) { return Scattered(c, kWalkElements); }, EmitGatherElementsGrad),
  };
  return *rows;
}

namespace {

// ScatterElements copies x and writes or reduces updates into positions along an axis. If a position has several
// updates, "none" keeps the last one along the axis; other reductions combine x and all updates.
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

Val ScatterInto(const GradContext& c, Val x, Val updates, std::string reduction) {
  return c.b.Op("ScatterElements", {x, c.x(1), updates},
                {{"axis", c.node.attrs.Int("axis")}, {"reduction", std::move(reduction)}});
}

// Gathers the elements of v at the index of the ScatterElements.
Val Pointed(const GradContext& c, Val v) {
  return c.b.Op("GatherElements", {v, c.x(1)}, {{"axis", c.node.attrs.Int("axis")}});
}

// Returns, for each element of the index, its own position along the axis.
Val Positions(const GradContext& c) {
  const int64_t axis = c.node.attrs.Int("axis");
  Shape along(c.x(1).rank(), 1);
  along[axis] = c.x(1).shape()[axis];
  const Val ones = Expand(c.b.Scalar(DType::kInt64, 1), std::move(along));
  const Val counted = c.b.Op("CumSum", {ones}, {{"axis", axis}, {"exclusive", int64_t{1}}});
  return Expand(counted, c.x(1).shape());
}

// Passes the gradient of a position to its last update or, if there is none, to x.
std::vector<Val> WriteGrad(const GradContext& c) {
  std::vector<Val> grads(3);
  if (c.need(0)) grads[0] = ScatterInto(c, c.dy(), Expand(Number(c.dy(), 0), c.x(1).shape()), "none");
  if (!c.need(2)) return grads;
  const Val mine = Positions(c), nothing = Expand(Number(mine, 0), c.x(0).shape());
  grads[2] = Masked(Equal(Pointed(c, ScatterInto(c, nothing, mine, "max")), mine), Pointed(c, c.dy()));
  return grads;
}

std::vector<Val> AddGrad(const GradContext& c) { return {c.dy(), Val(), Pointed(c, c.dy())}; }

// Returns the product of the other factors of a position, given the product of its nonzero factors and the number of
// its zeros.
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

// Divides the gradient equally among all elements that equal the extremum.
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
       .evaluate = EvalScatter,
       .emit = EmitSame},
  };
  return *rows;
}

namespace {

TypesOr TopKTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  const int64_t k = c.attrs.Int("k");
  Shape shape = c.in(0).shape;
  if (k < 0 || k > shape[axis]) return Invalid("k = ", k, " of an axis of ", shape[axis], " elements");
  shape[axis] = k;
  return std::vector<Type>{{c.in(0).dtype, shape}, {DType::kInt64, shape}};
}

// Scatters the gradient of each value to the element that it was taken from.
std::vector<Val> TopKGrad(const GradContext& c) {
  if (!c.dy().valid()) return {Val()};
  return {c.b.Op("GatherElementsGrad", {c.dy(), c.y(1)},
                 {{"axis", c.node.attrs.Int("axis")}, {"input_shape", c.x(0).shape()}})};
}

// Returns true if the value of element i precedes that of element j. NaN counts as larger than any number.
bool Before(const HostTensor& x, int64_t i, int64_t j, bool largest) {
  if (!largest) std::swap(i, j);
  if (!IsFloat(x.dtype())) {
    const int64_t a = x.IntAt(i), b = x.IntAt(j);
    return x.dtype() == DType::kUInt64 ? static_cast<uint64_t>(a) > static_cast<uint64_t>(b) : a > b;
  }
  const double a = x.At(i), b = x.At(j);
  return std::isnan(a) ? !std::isnan(b) : a > b;
}

std::vector<HostTensor> EvalTopK(const EvalContext& c) {
  const HostTensor& x = *c.inputs[0];
  const int64_t axis = c.attrs.Int("axis"), k = c.attrs.Int("k"), n = x.shape()[axis];
  const bool largest = c.attrs.Int("largest");
  HostTensor values(c.output_types[0]), places(c.output_types[1]);
  if (values.size() == 0) return {std::move(values), std::move(places)};
  const Shape from = Strides(x.shape()), to = Strides(values.shape());
  Shape lines = x.shape();
  lines[axis] = 1;
  std::vector<int64_t> order(n);
  Walk<2>(lines, {from, to}, {0, 0}, [&](int64_t, const std::array<int64_t, 2>& at) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return Before(x, at[0] + i * from[axis], at[0] + j * from[axis], largest);
    });
    for (int64_t i = 0; i < k; ++i) {
      CopyElement(x, at[0] + order[i] * from[axis], &values, at[1] + i * to[axis]);
      places.SetInt(at[1] + i * to[axis], order[i]);
    }
  });
  return {std::move(values), std::move(places)};
}

double LogPerElement(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const double k = static_cast<double>(attrs.Int("k"));
  return static_cast<double>(inputs[0]->elements()) * std::log2(k + 2);
}

}  // namespace

std::span<const OpRow> TopKOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "TopK",
       .outputs = 2,
       .attrs = {{"axis", int64_t{0}}, {"k", int64_t{1}, true}, {"largest", int64_t{1}}},
       .infer = TopKTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = TopKGrad,
       .evaluate = EvalTopK,
       .recompute = Recompute::kExpensive,
       .flops = LogPerElement,
       .emit = EmitTopK},
  };
  return *rows;
}

}  // namespace onnxtrain
