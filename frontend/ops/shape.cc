// Constants and operators that move elements.
#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

TypesOr ConstantTypes(const TypeContext& c) { return std::vector<Type>{c.attrs.Tensor("value")->type()}; }
std::vector<HostTensor> EvalConstant(const EvalContext& c) { return {*c.attrs.Tensor("value")}; }

TypesOr ReshapeTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(Shape shape, ShapeAttr(c, "shape"));
  if (NumElements(shape) != c.in(0).elements())
    return Invalid("cannot reshape ", ToString(c.in(0)), " to ", ToString(shape));
  return std::vector<Type>{{c.in(0).dtype, std::move(shape)}};
}
std::vector<Val> ReshapeGrad(const GradContext& c) { return {Reshape(c.dy(), c.x(0).shape())}; }
std::vector<HostTensor> EvalReshape(const EvalContext& c) { return {c.inputs[0]->Reshaped(c.output_types[0].shape)}; }

TypesOr ExpandTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(Shape shape, ShapeAttr(c, "shape"));
  if (BroadcastShapes(c.in(0).shape, shape) != shape) {
    return Invalid("cannot broadcast ", ToString(c.in(0)), " to ", ToString(shape));
  }
  return std::vector<Type>{{c.in(0).dtype, std::move(shape)}};
}
std::vector<Val> ExpandGrad(const GradContext& c) { return {SumTo(c.dy(), c.x(0).shape())}; }
std::vector<HostTensor> EvalExpand(const EvalContext& c) {
  const Type& type = c.output_types[0];
  return {GatherStrided(*c.inputs[0], type, BroadcastStrides(c.inputs[0]->shape(), type.shape))};
}

TypesOr TransposeTypes(const TypeContext& c) {
  const Type& x = c.in(0);
  ASSIGN_OR_RETURN(const Ints perm, IntsPerAxis(c, "perm", x.rank()));
  std::vector<bool> seen(x.rank(), false);
  Type type{x.dtype, {}};
  for (int64_t axis : perm) {
    if (axis < 0 || axis >= x.rank() || seen[axis]) return Invalid("perm ", ToString(perm), " is no permutation");
    seen[axis] = true;
    type.shape.push_back(x.shape[axis]);
  }
  return std::vector<Type>{std::move(type)};
}
std::vector<Val> TransposeGrad(const GradContext& c) {
  const Ints perm = c.node.attrs.Ints("perm");
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return {Transpose(c.dy(), std::move(inverse))};
}
std::vector<HostTensor> EvalTranspose(const EvalContext& c) {
  const Shape strides = Strides(c.inputs[0]->shape());
  Shape permuted;
  for (int64_t axis : c.attrs.Ints("perm")) permuted.push_back(strides[axis]);
  return {GatherStrided(*c.inputs[0], c.output_types[0], permuted)};
}

// Returns the shape with another extent along the axis.
Shape WithExtent(Shape shape, int64_t axis, int64_t extent) {
  shape[axis] = extent;
  return shape;
}

TypesOr ConcatTypes(const TypeContext& c) {
  Type type = c.in(0);
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, type.rank()));
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    if (!c.has(i)) return Invalid("input ", i, " is missing");
    RETURN_IF_ERROR(RequireSameDType(c, 0, i));
    if (c.in(i).rank() != type.rank() || WithExtent(c.in(i).shape, axis, 0) != WithExtent(type.shape, axis, 0)) {
      return Invalid("cannot concatenate ", ToString(c.in(0)), " and ", ToString(c.in(i)), " along axis ", axis);
    }
    type.shape[axis] += c.in(i).shape[axis];
    RETURN_IF_ERROR(CheckShape(type.shape));
  }
  return std::vector<Type>{std::move(type)};
}
std::vector<Val> ConcatGrad(const GradContext& c) {
  const int64_t axis = c.node.attrs.Int("axis");
  std::vector<Val> grads;
  int64_t start = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const int64_t length = c.x(i).dim(static_cast<int>(axis));
    grads.push_back(c.need(i) ? Slice(c.dy(), axis, start, length) : Val());
    start += length;
  }
  return grads;
}
std::vector<HostTensor> EvalConcat(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const int64_t axis = c.attrs.Int("axis");
  const Shape strides = Strides(y.shape());
  int64_t start = 0;
  for (const HostTensor* x : c.inputs) {
    Walk<1>(x->shape(), {strides}, {start * strides[axis]},
            [&](int64_t i, const std::array<int64_t, 1>& at) { CopyElement(*x, i, &y, at[0]); });
    start += x->shape()[axis];
  }
  return {std::move(y)};
}

TypesOr SplitTypes(const TypeContext& c) {
  const Type& x = c.in(0);
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, x.rank()));
  const Ints sizes = c.attrs.Ints("sizes");
  if (sizes.empty() || c.attrs.Int("num_outputs") != static_cast<int64_t>(sizes.size())) {
    return Invalid("num_outputs is ", c.attrs.Int("num_outputs"), ", got ", sizes.size(), " sizes");
  }
  std::vector<Type> types;
  int64_t rest = x.shape[axis];
  for (int64_t size : sizes) {
    if (size < 0 || size > rest)
      return Invalid("cannot split ", ToString(x), " along axis ", axis, " into ", ToString(sizes));
    rest -= size;
    types.push_back({x.dtype, WithExtent(x.shape, axis, size)});
  }
  if (rest != 0) return Invalid("sizes ", ToString(sizes), " leave ", rest, " of axis ", axis, " of ", ToString(x));
  return types;
}
// Concatenates the gradients of the parts, with zeros for parts without a gradient.
std::vector<Val> SplitGrad(const GradContext& c) {
  std::vector<Val> parts;
  for (size_t i = 0; i < c.outputs.size(); ++i) parts.push_back(c.grads[i].valid() ? c.grads[i] : ZerosLike(c.y(i)));
  return {Concat(std::move(parts), c.node.attrs.Int("axis"))};
}
std::vector<HostTensor> EvalSplit(const EvalContext& c) {
  std::vector<HostTensor> parts;
  const Shape strides = Strides(c.inputs[0]->shape());
  const int64_t axis = c.attrs.Int("axis");
  int64_t start = 0;
  for (const Type& type : c.output_types) {
    parts.push_back(GatherStrided(*c.inputs[0], type, strides, start * strides[axis]));
    start += type.shape[axis];
  }
  return parts;
}

// Requires starts[i] + k·steps[i], for 0 ≤ k < sizes[i], to stay inside each extent.
absl::Status CheckWindow(const Shape& shape, const Ints& starts, const Ints& sizes, const Ints& steps) {
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t d = shape[i], n = sizes[i], step = steps[i];
    // Limits the numbers first, so that no product of sizes, steps and strides can overflow.
    const int64_t longest = std::max<int64_t>(d, 1);
    bool ok = n >= 0 && n <= d && starts[i] >= 0 && starts[i] <= d && step != 0 && step >= -longest && step <= longest;
    const int64_t last = ok && n > 0 ? starts[i] + (n - 1) * step : 0;
    if (ok && n > 0) ok = starts[i] < d && last >= 0 && last < d;
    if (!ok) {
      return Invalid("slice from ", starts[i], " of ", n, " by ", step, " is outside axis ", i, " of ",
                     ToString(shape));
    }
  }
  return absl::OkStatus();
}

TypesOr SliceTypes(const TypeContext& c) {
  const Type& x = c.in(0);
  ASSIGN_OR_RETURN(const Ints starts, IntsPerAxis(c, "starts", x.rank()));
  ASSIGN_OR_RETURN(Ints sizes, IntsPerAxis(c, "sizes", x.rank()));
  ASSIGN_OR_RETURN(const Ints steps, IntsPerAxis(c, "steps", x.rank()));
  RETURN_IF_ERROR(CheckWindow(x.shape, starts, sizes, steps));
  return std::vector<Type>{{x.dtype, std::move(sizes)}};
}

TypesOr SliceGradTypes(const TypeContext& c) {
  const Type& dy = c.in(0);
  ASSIGN_OR_RETURN(Shape shape, ShapeAttr(c, "input_shape"));
  if (shape.size() != dy.shape.size())
    return Invalid("input_shape ", ToString(shape), " is not of the rank of ", ToString(dy));
  ASSIGN_OR_RETURN(const Ints starts, IntsPerAxis(c, "starts", dy.rank()));
  ASSIGN_OR_RETURN(const Ints steps, IntsPerAxis(c, "steps", dy.rank()));
  RETURN_IF_ERROR(CheckWindow(shape, starts, dy.shape, steps));
  return std::vector<Type>{{dy.dtype, std::move(shape)}};
}

std::vector<Val> SliceGradient(const GradContext& c) {
  const Attrs& a = c.node.attrs;
  Attrs attrs{{"input_shape", c.x(0).shape()}, {"starts", a.Ints("starts")}, {"steps", a.Ints("steps")}};
  return {c.b.Op("SliceGrad", {c.dy()}, std::move(attrs))};
}
std::vector<Val> SliceGradGradient(const GradContext& c) {
  const Attrs& a = c.node.attrs;
  Attrs attrs{{"starts", a.Ints("starts")}, {"sizes", c.x(0).shape()}, {"steps", a.Ints("steps")}};
  return {c.b.Op("Slice", {c.dy()}, std::move(attrs))};
}

// Strides and offset of a window within a dense tensor.
struct Window {
  Shape strides;
  int64_t start = 0;
};
Window MakeSliceWindow(const Shape& shape, const Ints& starts, const Ints& steps) {
  Window w{Strides(shape), 0};
  for (size_t i = 0; i < shape.size(); ++i) {
    w.start += starts[i] * w.strides[i];
    w.strides[i] *= steps[i];
  }
  return w;
}

std::vector<HostTensor> EvalSlice(const EvalContext& c) {
  const Window w = MakeSliceWindow(c.inputs[0]->shape(), c.attrs.Ints("starts"), c.attrs.Ints("steps"));
  return {GatherStrided(*c.inputs[0], c.output_types[0], w.strides, w.start)};
}

// Copies x into the window of *y.
void WriteWindow(const HostTensor& x, const Window& w, HostTensor* y) {
  Walk<1>(x.shape(), {w.strides}, {w.start},
          [&](int64_t i, const std::array<int64_t, 1>& at) { CopyElement(x, i, y, at[0]); });
}

std::vector<HostTensor> EvalSliceGrad(const EvalContext& c) {
  HostTensor dx(c.output_types[0]);
  WriteWindow(*c.inputs[0], MakeSliceWindow(dx.shape(), c.attrs.Ints("starts"), c.attrs.Ints("steps")), &dx);
  return {std::move(dx)};
}

TypesOr PadTypes(const TypeContext& c) {
  Type type = c.in(0);
  const Ints pads = c.attrs.Ints("pads");
  const size_t rank = type.shape.size();
  if (pads.size() != 2 * rank)
    return Invalid("pads should be 2 per axis of ", ToString(type), ", got ", ToString(pads));
  for (size_t i = 0; i < 2 * rank; ++i) {
    // Checks each addend separately, so that their sum cannot overflow.
    if (pads[i] < 0) return Invalid("pads ", ToString(pads), " have a negative one");
    RETURN_IF_ERROR(CheckShape({pads[i]}));
    type.shape[i % rank] += pads[i];
  }
  return std::vector<Type>{std::move(type)};
}
std::vector<Val> PadGrad(const GradContext& c) {
  Ints starts = c.node.attrs.Ints("pads");
  starts.resize(c.x(0).rank());
  Ints steps(starts.size(), 1);
  Attrs attrs{{"starts", std::move(starts)}, {"sizes", c.x(0).shape()}, {"steps", std::move(steps)}};
  return {c.b.Op("Slice", {c.dy()}, std::move(attrs))};
}
std::vector<HostTensor> EvalPad(const EvalContext& c) {
  HostTensor y = HostTensor::Filled(c.output_types[0], c.attrs.Float("value"));
  Ints starts = c.attrs.Ints("pads");
  starts.resize(y.shape().size());
  WriteWindow(*c.inputs[0], MakeSliceWindow(y.shape(), starts, Ints(starts.size(), 1)), &y);
  return {std::move(y)};
}

OpRow Move(std::string_view name, std::vector<AttrSpec> attrs, TypeRule infer, Gradient gradient, Evaluate evaluate) {
  return {.name = name,
          .attrs = std::move(attrs),
          .infer = infer,
          .grad_status = GradStatus::kFormula,
          .gradient = gradient,
          .evaluate = evaluate,
          .moves_data = true};
}

// Returns the row of an operator whose output also has elements that are zeros or another constant.
OpRow Fill(std::string_view name, std::vector<AttrSpec> attrs, TypeRule infer, Gradient gradient, Evaluate evaluate) {
  OpRow row = Move(name, std::move(attrs), infer, gradient, evaluate);
  row.moves_data = false;
  return row;
}

AttrSpec Required(std::string_view name, AxisRole axes = AxisRole::kNone) { return {name, Ints{}, true, axes}; }

std::vector<AttrSpec> PerAxis(std::initializer_list<std::string_view> names) {
  std::vector<AttrSpec> specs;
  for (std::string_view name : names) specs.push_back(Required(name, AxisRole::kPerAxis));
  return specs;
}

constexpr LayoutOperands kInAnyOrder = {.inputs = 1, .outputs = 1, .any_order = true};

}  // namespace

std::span<const OpRow> ShapeOps() {
  static const auto* rows = [] {
    OpRow reshape = Move("Reshape", {Required("shape")}, ReshapeTypes, ReshapeGrad, EvalReshape);
    reshape.view = true;
    reshape.recompute = Recompute::kFree;
    reshape.emit = EmitReshape;
    reshape.simplify = SimplifyReshape;
    const AttrSpec axis = {"axis", int64_t{0}, true, AxisRole::kAxis};
    OpRow expand = Move("Expand", {Required("shape", AxisRole::kPerAxis)}, ExpandTypes, ExpandGrad, EvalExpand);
    expand.recompute = Recompute::kFree;
    expand.layout = kInAnyOrder;
    expand.emit = EmitExpand;
    expand.simplify = SimplifyExpand;
    OpRow concat = Move("Concat", {axis}, ConcatTypes, ConcatGrad, EvalConcat);
    concat.inputs = {1, Arity::kMany};
    concat.init.roles = {WeightRole::kTable};
    concat.layout = {.inputs = kAllOperands, .outputs = 1, .any_order = true};
    concat.emit = EmitSame;
    concat.simplify = SimplifyConcat;
    OpRow split =
        Move("Split", {axis, Required("sizes"), {"num_outputs", int64_t{1}, true}}, SplitTypes, SplitGrad, EvalSplit);
    split.outputs = kOutputsFromAttr;
    split.layout = {.inputs = 1, .outputs = kAllOperands, .any_order = true};
    split.emit = EmitSplit;
    split.simplify = SimplifySplit;
    OpRow slice = Move("Slice", PerAxis({"starts", "sizes", "steps"}), SliceTypes, SliceGradient, EvalSlice);
    slice.layout = kInAnyOrder;
    slice.emit = EmitSlice;
    slice.simplify = SimplifySlice;
    OpRow slice_grad = Fill("SliceGrad", PerAxis({"input_shape", "starts", "steps"}), SliceGradTypes, SliceGradGradient,
                            EvalSliceGrad);
    slice_grad.layout = kInAnyOrder;
    slice_grad.is_gradient = true;
    slice_grad.emit = EmitSliceGrad;
    slice_grad.simplify = SimplifySliceGrad;
    OpRow pad = Fill("Pad", {Required("pads", AxisRole::kPads), {"value", 0.0}}, PadTypes, PadGrad, EvalPad);
    pad.layout = kInAnyOrder;
    pad.copies = true;
    pad.emit = EmitPad;
    pad.simplify = SimplifyPad;
    OpRow transpose = Move("Transpose", {Required("perm")}, TransposeTypes, TransposeGrad, EvalTranspose);
    transpose.derive = true;
    transpose.emit = EmitSame;
    transpose.simplify = SimplifyTranspose;
    return new std::vector<OpRow>{
        {.name = "Constant",
         .inputs = {0, 0},
         .attrs = {{"value", HostTensor(), true}},
         .infer = ConstantTypes,
         .grad_status = GradStatus::kZero,
         .evaluate = EvalConstant,
         .recompute = Recompute::kFree,
         .emit = EmitConstant},
        std::move(reshape),
        std::move(transpose),
        std::move(expand),
        std::move(concat),
        std::move(split),
        std::move(slice),
        std::move(slice_grad),
        std::move(pad),
    };
  }();
  return *rows;
}

}  // namespace onnxtrain
