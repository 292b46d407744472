// Pooling over windows.
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {
namespace {

absl::StatusOr<Shape> PoolShape(const Shape& x, const Attrs& attrs) {
  if (x.size() < 3) return Invalid("expected [N,C,…] with spatial axes, got ", ToString(x));
  ASSIGN_OR_RETURN(const Windows w, ReadWindows(attrs, attrs.Ints("kernel_shape")));
  RETURN_IF_ERROR(CheckWindowsOverlapInput(w, Spatial(x)));
  ASSIGN_OR_RETURN(const Shape counts, WindowCounts(w, Spatial(x)));
  Shape y = {x[0], x[1]};
  y.insert(y.end(), counts.begin(), counts.end());
  return y;
}

absl::StatusOr<std::vector<Type>> InferMaxPool(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  ASSIGN_OR_RETURN(Shape y, PoolShape(c.in(0).shape, c.attrs));
  const bool in_window = c.attrs.Int("index_in_window") != 0;
  double window = 1;
  for (int64_t k : c.attrs.Ints("kernel_shape")) window *= static_cast<double>(k);
  if (in_window && window > 255) return Invalid("windows of more than 255 elements");
  return std::vector<Type>{{c.in(0).dtype, y}, {in_window ? DType::kUInt8 : DType::kInt64, y}};
}

absl::StatusOr<std::vector<Type>> InferMaxPoolGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  const Shape& dy = c.in(0).shape;
  const bool in_window = c.has(1) && c.in(1).dtype == DType::kUInt8;
  RETURN_IF_ERROR(CheckInputType(c, 1, {in_window ? DType::kUInt8 : DType::kInt64, dy}));
  Shape dx = c.attrs.Ints("input_shape");
  if (in_window) {
    RETURN_IF_ERROR(CheckShape(dx));
    ASSIGN_OR_RETURN(const Shape y, PoolShape(dx, c.attrs));
    RETURN_IF_ERROR(CheckInputShape(c, 0, y));
  }
  if (dy.size() < 3 || dx.size() != dy.size() || dx[0] != dy[0] || dx[1] != dy[1]) {
    return Invalid("pooling ", ToString(dx), " cannot give ", ToString(dy));
  }
  return std::vector<Type>{{c.in(0).dtype, std::move(dx)}};
}

absl::StatusOr<std::vector<Type>> InferAveragePool(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  ASSIGN_OR_RETURN(Shape y, PoolShape(c.in(0).shape, c.attrs));
  return std::vector<Type>{{c.in(0).dtype, std::move(y)}};
}

absl::StatusOr<std::vector<Type>> InferAveragePoolGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  Shape dx = c.attrs.Ints("input_shape");
  RETURN_IF_ERROR(CheckShape(dx));
  ASSIGN_OR_RETURN(const Shape y, PoolShape(dx, c.attrs));
  RETURN_IF_ERROR(CheckInputShape(c, 0, y));
  return std::vector<Type>{{c.in(0).dtype, std::move(dx)}};
}

std::vector<Val> MaxPoolGradient(const GradContext& c) {
  return {c.b.Op("MaxPoolGrad", {c.dy(), c.y(1)}, {{"input_shape", c.x(0).shape()}})};
}

std::vector<Val> AveragePoolGradient(const GradContext& c) {
  Attrs attrs = c.node.attrs;
  attrs.Set("input_shape", c.x(0).shape());
  return {c.b.Op("AveragePoolGrad", {c.dy()}, std::move(attrs))};
}

std::vector<Val> AveragePoolGradGradient(const GradContext& c) {
  Attrs attrs = c.node.attrs;
  attrs.Erase("input_shape");
  return {c.b.Op("AveragePool", {c.dy()}, std::move(attrs))};
}

double WindowFlops(const Type& y, const Attrs& attrs) {
  double flops = static_cast<double>(y.elements());
  for (int64_t k : attrs.Ints("kernel_shape")) flops *= static_cast<double>(k);
  return flops;
}

using Types = std::span<const Type* const>;
double PoolFlops(Types, std::span<const Type> out, const Attrs& attrs) { return WindowFlops(out[0], attrs); }
double PoolGradFlops(Types in, std::span<const Type>, const Attrs& attrs) { return WindowFlops(*in[0], attrs); }

AttrSpec RequiredInts(std::string_view name) { return {name, std::vector<int64_t>(), true}; }

std::vector<AttrSpec> PoolAttrSpecs() {
  return {RequiredInts("kernel_shape"), RequiredInts("strides"), RequiredInts("pads"), RequiredInts("dilations")};
}

std::vector<AttrSpec> MaxAttrSpecs() {
  std::vector<AttrSpec> attrs = PoolAttrSpecs();
  attrs.push_back({"index_in_window", int64_t{0}});
  return attrs;
}

// The window attributes are set only if the index counts within the window.
std::vector<AttrSpec> MaxGradAttrSpecs() {
  const std::vector<int64_t> ints;
  return {RequiredInts("input_shape"), {"kernel_shape", ints}, {"strides", ints}, {"pads", ints}, {"dilations", ints}};
}

std::vector<AttrSpec> AverageAttrSpecs() {
  std::vector<AttrSpec> attrs = PoolAttrSpecs();
  attrs.push_back({"count_include_pad", int64_t{0}});
  return attrs;
}

std::vector<AttrSpec> AverageGradAttrSpecs() {
  std::vector<AttrSpec> attrs = AverageAttrSpecs();
  attrs.push_back(RequiredInts("input_shape"));
  return attrs;
}

}  // namespace

std::span<const OpRow> PoolOps() {
  static const std::vector<OpRow> rows = {
      {.name = "MaxPool",
       .inputs = {1, 1},
       .outputs = 2,
       .attrs = MaxAttrSpecs(),
       .infer = InferMaxPool,
       .grad_status = GradStatus::kFormula,
       .gradient = MaxPoolGradient,
       .flops = PoolFlops,
       .layout = {.inputs = 1, .outputs = 3},
       .selects = true,
       .init = {.transparent = true},
       .emit = EmitMaxPool},
      {.name = "MaxPoolGrad",
       .inputs = {2, 2},
       .attrs = MaxGradAttrSpecs(),
       .infer = InferMaxPoolGrad,
       .layout = {.inputs = 3, .outputs = 1},
       .is_gradient = true,
       .emit = EmitMaxPoolGrad},
      {.name = "AveragePool",
       .inputs = {1, 1},
       .attrs = AverageAttrSpecs(),
       .infer = InferAveragePool,
       .grad_status = GradStatus::kFormula,
       .gradient = AveragePoolGradient,
       .flops = PoolFlops,
       .layout = {.inputs = 1, .outputs = 1},
       .init = {.transparent = true},
       .emit = EmitAveragePool},
      {.name = "AveragePoolGrad",
       .inputs = {1, 1},
       .attrs = AverageGradAttrSpecs(),
       .infer = InferAveragePoolGrad,
       .grad_status = GradStatus::kFormula,
       .gradient = AveragePoolGradGradient,
       .flops = PoolGradFlops,
       .layout = {.inputs = 1, .outputs = 1},
       .is_gradient = true,
       .emit = EmitAveragePoolGrad},
  };
  return rows;
}

}  // namespace onnxtrain
