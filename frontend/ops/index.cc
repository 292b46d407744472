// Gather, GatherElements and their gradients.
#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/indexing.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {

absl::Status CheckIndexable(const Shape& x, int64_t axis, const Shape& index) {
  if (x[axis] > 0 || NumElements(index) == 0) return absl::OkStatus();
  return Invalid("axis ", axis, " of ", ToString(x), " is empty, but the index is not: ", ToString(index));
}

absl::Status CheckElementsIndex(const Shape& x, const Shape& index, int64_t axis) {
  RETURN_IF_ERROR(CheckIndexable(x, axis, index));
  bool ok = x.size() == index.size();
  for (size_t i = 0; ok && i < x.size(); ++i) ok = static_cast<int64_t>(i) == axis || index[i] <= x[i];
  return ok ? absl::OkStatus() : Invalid("an index of shape ", ToString(index), " does not fit into ", ToString(x));
}

namespace {

// The shape of Gather's output: the index's shape in place of the axis.
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

// PyTorch does not train the row of a table that stands for padding: no gradient reaches it through this node.
Val ZeroPadding(const GradContext& c) {
  const int64_t padding = c.node.attrs.Int("padding_idx");
  if (padding < 0) return c.dy();
  Shape along = c.x(1).shape();
  along.resize(c.dy().rank() - c.node.attrs.Int("axis"), 1);
  return Where(Reshape(Equal(c.x(1), static_cast<double>(padding)), std::move(along)), Number(c.dy(), 0), c.dy());
}

// Gather and scatter-add are linear in x: each is the gradient of the other. `op` is the scatter.
std::vector<Val> Scatter(const GradContext& c, std::string_view op, Val dy) {
  Attrs attrs{{"axis", c.node.attrs.Int("axis")}, {"input_shape", c.x(0).shape()}};
  return {c.b.Op(op, {dy, c.x(1)}, std::move(attrs)), Val()};
}
std::vector<Val> Regather(const GradContext& c, std::string_view op) {
  return {c.b.Op(op, {c.dy(), c.x(1)}, {{"axis", c.node.attrs.Int("axis")}}), Val()};
}

// Visits the elements of the gathered tensor: f(its offset, the offset in x).
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

OpRow IndexRow(std::string_view name, bool scatters, TypeRule infer, Gradient gradient, Evaluate evaluate) {
  OpRow row{.name = name,
            .inputs = {2, 2},
            .attrs = {{"axis", int64_t{0}}},
            .infer = infer,
            .grad_status = GradStatus::kFormula,
            .gradient = gradient,
            .evaluate = evaluate};
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
          [](const EvalContext& c) { return Gathered(c, kWalkGather); }),
      IndexRow(
          "GatherGrad", true, GatherGradTypes, [](const GradContext& c) { return Regather(c, "Gather"); },
          [](const EvalContext& c) { return Scattered(c, kWalkGather); }),
      IndexRow(
          "GatherElements", false, GatherElementsTypes,
          [](const GradContext& c) { return Scatter(c, "GatherElementsGrad", c.dy()); },
          [](const EvalContext& c) { return Gathered(c, kWalkElements); }),
      IndexRow(
          "GatherElementsGrad", true, GatherElementsGradTypes,
          [](const GradContext& c) { return Regather(c, "GatherElements"); },
          [](const EvalContext& c) { return Scattered(c, kWalkElements); }),
  };
  return *rows;
}

}  // namespace onnxtrain
