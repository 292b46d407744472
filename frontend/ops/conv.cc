// Conv, ConvTranspose and ConvWeightGrad. Each is bilinear in two of (x, w, dy), and its gradients are the other two
// operators, so the family is closed under differentiation.
#include <numeric>

#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {
namespace {

// Returns the shape of y for x [N,C,…] and w [M,C/g,…].
absl::StatusOr<Shape> ConvShape(const Shape& x, const Shape& w, const Attrs& attrs) {
  if (x.size() != w.size() || x.size() < 3)
    return Invalid("cannot convolve ", ToString(x), " with weights ", ToString(w));
  const int64_t group = attrs.Int("group", 1);
  if (group < 1 || w[0] < 1 || w[0] % group != 0) {
    return Invalid("group ", group, " does not divide the ", w[0], " output channels of weights ", ToString(w));
  }
  if (x[1] % group != 0 || x[1] / group != w[1]) {
    return Invalid("input ", ToString(x), " has ", x[1], " channels, weights ", ToString(w), " want ", w[1],
                   " for each of ", group, " groups");
  }
  ASSIGN_OR_RETURN(const Windows windows, ReadWindows(attrs, Shape(w.begin() + 2, w.end())));
  ASSIGN_OR_RETURN(const Shape counts, WindowCounts(windows, Spatial(x)));
  Shape y = {x[0], w[0]};
  y.insert(y.end(), counts.begin(), counts.end());
  return y;
}

absl::Status CheckConvOutputShape(const Shape& dy, const Shape& x, const Shape& w, const Attrs& attrs) {
  RETURN_IF_ERROR(CheckShape(x));
  RETURN_IF_ERROR(CheckShape(w));
  ASSIGN_OR_RETURN(const Shape y, ConvShape(x, w, attrs));
  if (y == dy) return absl::OkStatus();
  return Invalid("the convolution of ", ToString(x), " with ", ToString(w), " has shape ", ToString(y), ", not ",
                 ToString(dy));
}

// Returns the element type of the result: that of the factors, or `to`. The result of 16-bit factors, with a bias, may
// be float32, so that it is rounded only once.
absl::StatusOr<DType> ConvResult(const TypeContext& c) {
  const std::string to = c.attrs.String("to");
  RETURN_IF_ERROR(CheckFloats(c, to.empty() ? 3 : 2));
  const DType factors = c.in(0).dtype;
  if (to.empty() || ToString(factors) == to) return factors;
  const bool wide = DTypeSize(factors) < 4 && to == ToString(DType::kFloat32);
  return wide ? absl::StatusOr<DType>(DType::kFloat32) : Invalid("no convolution of ", ToString(c.in(0)), " to ", to);
}

absl::StatusOr<std::vector<Type>> InferConv(const TypeContext& c) {
  ASSIGN_OR_RETURN(const DType result, ConvResult(c));
  ASSIGN_OR_RETURN(Shape y, ConvShape(c.in(0).shape, c.in(1).shape, c.attrs));
  RETURN_IF_ERROR(CheckInputShape(c, 2, {y[1]}));
  if (c.has(2) && !c.attrs.String("to").empty()) RETURN_IF_ERROR(CheckInputType(c, 2, {DType::kFloat32, {y[1]}}));
  return std::vector<Type>{{result, std::move(y)}};
}

absl::StatusOr<std::vector<Type>> InferConvTranspose(const TypeContext& c) {
  ASSIGN_OR_RETURN(const DType result, ConvResult(c));
  const Shape &dy = c.in(0).shape, &w = c.in(1).shape;
  if (dy.size() < 3 || dy.size() != w.size())
    return Invalid("cannot convolve ", ToString(dy), " with weights ", ToString(w));
  const int64_t group = c.attrs.Int("group", 1);
  // With group ≤ M, the product C = group·w[1] cannot overflow.
  if (group < 1 || group > w[0]) return Invalid("group ", group, " does not divide weights ", ToString(w));
  Shape dx = {dy[0], w[1] * group};
  const Shape spatial = c.attrs.Ints("output_shape");
  dx.insert(dx.end(), spatial.begin(), spatial.end());
  RETURN_IF_ERROR(CheckConvOutputShape(dy, dx, w, c.attrs));
  return std::vector<Type>{{result, std::move(dx)}};
}

absl::StatusOr<std::vector<Type>> InferConvWeightGrad(const TypeContext& c) {
  ASSIGN_OR_RETURN(const DType result, ConvResult(c));
  const Shape &x = c.in(0).shape, &dy = c.in(1).shape;
  const int64_t group = c.attrs.Int("group", 1);
  if (x.size() < 3 || dy.size() != x.size() || group < 1 || x[1] % group != 0) {
    return Invalid("no convolution of ", ToString(x), " in ", group, " groups gives ", ToString(dy));
  }
  Shape w = {dy[1], x[1] / group};
  const Shape kernel = c.attrs.Ints("kernel_shape");
  w.insert(w.end(), kernel.begin(), kernel.end());
  RETURN_IF_ERROR(CheckConvOutputShape(dy, x, w, c.attrs));
  return std::vector<Type>{{result, std::move(w)}};
}

Attrs Geometry(const Attrs& from) {
  Attrs attrs;
  for (std::string name : {"strides", "pads", "dilations"}) attrs.Set(name, from.Ints(name));
  attrs.Set("group", from.Int("group", 1));
  return attrs;
}

Shape SpatialShape(const Shape& shape) { return Shape(shape.begin() + 2, shape.end()); }

Val Forward(Builder& b, Val x, Val w, const Attrs& attrs) { return b.Op("Conv", {x, w}, Geometry(attrs)); }

Val InputGrad(Builder& b, Val dy, Val w, const Shape& x, const Attrs& attrs) {
  Attrs a = Geometry(attrs);
  a.Set("output_shape", SpatialShape(x));
  return b.Op("ConvTranspose", {dy, w}, std::move(a));
}

Val WeightGrad(Builder& b, Val x, Val dy, const Shape& w, const Attrs& attrs) {
  Attrs a = Geometry(attrs);
  a.Set("kernel_shape", SpatialShape(w));
  return b.Op("ConvWeightGrad", {x, dy}, std::move(a));
}

std::vector<Val> ConvGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  std::vector<Val> grads(c.inputs.size());
  if (c.need(0)) grads[0] = InputGrad(c.b, c.dy(), c.x(1), c.x(0).shape(), attrs);
  if (c.need(1)) grads[1] = WeightGrad(c.b, c.x(0), c.dy(), c.x(1).shape(), attrs);
  if (c.need(2)) {
    std::vector<int64_t> axes(c.dy().rank() - 1, 0);  // 0, 2, 3, …: all axes except the channels
    std::iota(axes.begin() + 1, axes.end(), 2);
    grads[2] = ReduceSum(c.dy(), std::move(axes), false);
  }
  return grads;
}

std::vector<Val> ConvTransposeGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  std::vector<Val> grads(2);
  if (c.need(0)) grads[0] = Forward(c.b, c.dy(), c.x(1), attrs);
  if (c.need(1)) grads[1] = WeightGrad(c.b, c.dy(), c.x(0), c.x(1).shape(), attrs);
  return grads;
}

std::vector<Val> ConvWeightGradGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  std::vector<Val> grads(2);
  if (c.need(0)) grads[0] = InputGrad(c.b, c.x(1), c.dy(), c.x(0).shape(), attrs);
  if (c.need(1)) grads[1] = Forward(c.b, c.x(0), c.dy(), attrs);
  return grads;
}

// Returns the FLOPs: each element of y is a product with one filter of w, and the gradients need as many operations.
double Flops(const Type& y, const Type& w) {
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(w.elements()) / static_cast<double>(w.shape[0]);
}

using Types = std::span<const Type* const>;
double ConvFlops(Types in, std::span<const Type> out, const Attrs&) { return Flops(out[0], *in[1]); }
double TransposeFlops(Types in, std::span<const Type>, const Attrs&) { return Flops(*in[0], *in[1]); }
double WeightGradFlops(Types in, std::span<const Type> out, const Attrs&) { return Flops(*in[1], out[0]); }

std::vector<AttrSpec> GeometryAttrs(std::initializer_list<AttrSpec> more = {}) {
  const std::vector<int64_t> ints;
  std::vector<AttrSpec> attrs = {{"strides", ints, true},
                                 {"pads", ints, true},
                                 {"dilations", ints, true},
                                 {"group", int64_t{1}},
                                 {"to", std::string()}};
  attrs.insert(attrs.end(), more);
  return attrs;
}

}  // namespace

std::span<const OpRow> ConvOps() {
  static const std::vector<OpRow> rows = {
      {.name = "Conv",
       .inputs = {2, 3},
       .attrs = GeometryAttrs(),
       .infer = InferConv,
       .grad_status = GradStatus::kFormula,
       .gradient = ConvGradient,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = ConvFlops,
       .layout = {.inputs = 1, .outputs = 1, .packed = 2},
       .init = {.roles = {WeightRole::kData, WeightRole::kConvKernel, WeightRole::kBias}},
       .emit = EmitConv},
      {.name = "ConvTranspose",
       .inputs = {2, 2},
       .attrs = GeometryAttrs({{"output_shape", std::vector<int64_t>(), true}}),
       .infer = InferConvTranspose,
       .grad_status = GradStatus::kFormula,
       .gradient = ConvTransposeGradient,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = TransposeFlops,
       .layout = {.inputs = 1, .outputs = 1, .packed = 2},
       .init = {.roles = {WeightRole::kData, WeightRole::kConvTransposeKernel}},
       .emit = EmitConvTranspose},
      {.name = "ConvWeightGrad",
       .inputs = {2, 2},
       .attrs = GeometryAttrs({{"kernel_shape", std::vector<int64_t>(), true}}),
       .infer = InferConvWeightGrad,
       .grad_status = GradStatus::kFormula,
       .gradient = ConvWeightGradGradient,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = WeightGradFlops,
       .layout = {.inputs = 3},
       .is_gradient = true,
       .emit = EmitConvWeightGrad},
  };
  return rows;
}

}  // namespace onnxtrain
