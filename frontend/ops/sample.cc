// Sampling at computed positions: GridSample and RoiAlign.
#include "frontend/ops/sample.h"

#include "frontend/base/status.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

absl::Status CheckSpec(const Attrs& attrs, size_t spatial) {
  const std::string mode = attrs.String("mode"), padding = attrs.String("padding_mode");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    return Invalid("mode '", mode, "' is none of nearest, linear, cubic");
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    return Invalid("padding_mode '", padding, "' is none of zeros, border, reflection");
  }
  if (mode == "cubic" && spatial != 2)
    return absl::UnimplementedError("cubic sampling over three spatial axes is not supported");
  return absl::OkStatus();
}

// Returns the shape [N,C,out…] of x [N,C,spatial…] sampled on a grid [N,out…,r].
absl::StatusOr<Shape> SampledShape(const Shape& x, const Shape& grid, const Attrs& attrs) {
  const size_t spatial = x.size() < 2 ? 0 : x.size() - 2;
  if (spatial != 2 && spatial != 3) return Invalid("expected [N,C,…] with 2 or 3 spatial axes, got ", ToString(x));
  RETURN_IF_ERROR(CheckSpec(attrs, spatial));
  if (grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(spatial)) {
    return Invalid("a grid of shape ", ToString(grid), " does not fit to ", ToString(x));
  }
  Shape y = {x[0], x[1]};
  y.insert(y.end(), grid.begin() + 1, grid.end() - 1);
  const bool empty = std::any_of(x.begin() + 2, x.end(), [](int64_t n) { return n == 0; });
  if (empty) return Invalid("there is nothing to sample in ", ToString(x));
  for (size_t i = 2; i < x.size(); ++i) {
    if (x[i] >= int64_t{1} << 29) return Invalid("an axis of ", x[i], " elements is too long to be sampled");
  }
  return y;
}

TypesOr GridSampleTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  ASSIGN_OR_RETURN(Shape y, SampledShape(c.in(0).shape, c.in(1).shape, c.attrs));
  return std::vector<Type>{{c.in(0).dtype, std::move(y)}};
}

// Infers dy, grid → dx.
TypesOr GridSampleInputGradTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  ASSIGN_OR_RETURN(Shape x, ShapeAttr(c, "input_shape"));
  ASSIGN_OR_RETURN(const Shape y, SampledShape(x, c.in(1).shape, c.attrs));
  RETURN_IF_ERROR(RequireShape(c, 0, y));
  return std::vector<Type>{{c.in(0).dtype, std::move(x)}};
}

// Infers dy, x, grid → dgrid.
TypesOr GridSampleGridGradTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 3));
  ASSIGN_OR_RETURN(const Shape y, SampledShape(c.in(1).shape, c.in(2).shape, c.attrs));
  RETURN_IF_ERROR(RequireShape(c, 0, y));
  return std::vector<Type>{c.in(2)};
}

std::vector<Val> GridSampleGradient(const GradContext& c) {
  std::vector<Val> dx(2);
  if (c.need(0)) {
    Attrs attrs = c.node.attrs;
    attrs.Set("input_shape", c.x(0).shape());
    dx[0] = c.b.Op("GridSampleInputGrad", {c.dy(), c.x(1)}, std::move(attrs));
  }
  if (c.need(1)) {
    const Attrs attrs = c.b.graph().producer(c.y().id())->attrs;
    dx[1] = c.b.Op("GridSampleGridGrad", {c.dy(), c.x(0), c.x(1)}, attrs);
  }
  return dx;
}

// Calls f(offset within the plane, weight) for each combination of taps of all axes.
template <typename F>
void ForTaps(const SampleSpec& spec, const double* grid, const Shape& spatial, F f) {
  const size_t axes = spatial.size();
  SampleTaps<double> taps[3];
  for (size_t a = 0; a < axes; ++a) TapsAlong(spec, grid[axes - 1 - a], spatial[a], &taps[a]);
  Walk<1>(Shape(axes, spec.taps()), {Shape(axes, 0)}, {0}, [&](int64_t i, const std::array<int64_t, 1>&) {
    int64_t offset = 0;
    double weight = 1;
    Shape t(axes);
    for (size_t a = axes; a-- > 0; i /= spec.taps()) t[a] = i % spec.taps();
    for (size_t a = 0; a < axes; ++a) {
      offset = offset * spatial[a] + taps[a].index[t[a]];
      weight *= taps[a].weight[t[a]];
    }
    f(offset, weight);
  });
}

std::vector<HostTensor> EvaluateGridSample(const EvalContext& c) {
  const SampleSpec spec = SampleSpec::FromAttrs(c.attrs);
  const Shape& x = c.inputs[0]->shape();
  const Shape spatial(x.begin() + 2, x.end());
  const auto axes = static_cast<int64_t>(spatial.size());
  const std::vector<double> grid = c.inputs[1]->ToDoubles();
  HostTensor y(c.output_types[0]);
  const int64_t plane = NumElements(spatial), planes = x[0] * x[1], outputs = planes == 0 ? 0 : y.size() / planes;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t p = i / outputs, position = p / x[1] * outputs + i % outputs;
    double sum = 0;
    ForTaps(spec, &grid[position * axes], spatial,
            [&](int64_t at, double w) { sum += w * c.inputs[0]->At(p * plane + at); });
    y.Set(i, sum);
  }
  return {std::move(y)};
}

// Returns the output shape for x [N,C,H,W], rois [R,4] and batch index [R].
absl::StatusOr<Shape> RoiShape(const Shape& x, const Shape& rois, const Shape& batch, const Attrs& attrs) {
  if (x.size() != 4) return Invalid("expected [N,C,H,W], got ", ToString(x));
  if (rois.size() != 2 || rois[1] != 4) return Invalid("expected regions [R,4], got ", ToString(rois));
  if (batch != Shape{rois[0]}) return Invalid("expected ", rois[0], " batch indices, got ", ToString(batch));
  const RoiSpec spec = RoiSpec::FromAttrs(attrs);
  constexpr int64_t kLimit = int64_t{1} << 20;
  const std::string mode = attrs.String("mode");
  if (mode != "avg" && mode != "max") return Invalid("mode '", mode, "' is neither avg nor max");
  if (spec.height < 1 || spec.width < 1 || spec.height > kLimit || spec.width > kLimit) {
    return Invalid("cannot pool into ", spec.height, " by ", spec.width, " bins");
  }
  if (spec.sampling_ratio < 0 || spec.sampling_ratio > kMaxRoiSamples) {
    return Invalid("sampling_ratio ", spec.sampling_ratio, " should be between 0 and ", kMaxRoiSamples);
  }
  if (!std::isfinite(spec.scale)) return Invalid("spatial_scale is not finite");
  const bool empty = x[0] == 0 || x[2] == 0 || x[3] == 0;
  if (empty && rois[0] > 0) return Invalid("there is nothing to pool in ", ToString(x));
  return Shape{rois[0], x[1], spec.height, spec.width};
}

TypesOr RoiAlignTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  RETURN_IF_ERROR(RequireDType(c, 2, DType::kInt64));
  ASSIGN_OR_RETURN(Shape y, RoiShape(c.in(0).shape, c.in(1).shape, c.in(2).shape, c.attrs));
  return std::vector<Type>{{c.in(0).dtype, std::move(y)}};
}

// Infers dy, rois, batch index, x (mode max only) → dx.
TypesOr RoiAlignGradTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 2));
  RETURN_IF_ERROR(RequireDType(c, 2, DType::kInt64));
  ASSIGN_OR_RETURN(Shape x, ShapeAttr(c, "input_shape"));
  ASSIGN_OR_RETURN(const Shape y, RoiShape(x, c.in(1).shape, c.in(2).shape, c.attrs));
  RETURN_IF_ERROR(RequireShape(c, 0, y));
  if (c.has(3)) RETURN_IF_ERROR(CheckInputType(c, 3, {c.in(0).dtype, x}));
  if (!c.has(3) && c.attrs.String("mode") == "max") return Invalid("the mode max needs the input that was pooled");
  return std::vector<Type>{{c.in(0).dtype, std::move(x)}};
}

std::vector<Val> RoiAlignGradient(const GradContext& c) {
  if (!c.need(0)) return std::vector<Val>(3);
  Attrs attrs = c.node.attrs;
  const Val x = attrs.String("mode") == "max" ? c.x(0) : Val();
  attrs.Set("input_shape", c.x(0).shape());
  return {c.b.Op("RoiAlignGrad", {c.dy(), c.x(1), c.x(2), x}, std::move(attrs)), Val(), Val()};
}

std::vector<AttrSpec> GridAttrs(bool input_shape) {
  std::vector<AttrSpec> attrs = {
      {"mode", std::string("linear")}, {"padding_mode", std::string("zeros")}, {"align_corners", int64_t{0}}};
  if (input_shape) attrs.push_back({"input_shape", std::vector<int64_t>(), true});
  return attrs;
}

std::vector<AttrSpec> RoiAttrs(bool input_shape) {
  std::vector<AttrSpec> attrs = {{"mode", std::string("avg")}, {"output_height", int64_t{1}},
                                 {"output_width", int64_t{1}}, {"sampling_ratio", int64_t{0}},
                                 {"spatial_scale", 1.0},       {"half_pixel", int64_t{1}}};
  if (input_shape) attrs.push_back({"input_shape", std::vector<int64_t>(), true});
  return attrs;
}

}  // namespace

SampleSpec SampleSpec::FromAttrs(const Attrs& attrs) {
  const std::string mode = attrs.String("mode"), padding = attrs.String("padding_mode");
  return {mode == "nearest"  ? SampleMode::kNearest
          : mode == "linear" ? SampleMode::kLinear
                             : SampleMode::kCubic,
          padding == "zeros"    ? SamplePadding::kZeros
          : padding == "border" ? SamplePadding::kBorder
                                : SamplePadding::kReflection,
          attrs.Int("align_corners") != 0};
}

RoiSpec RoiSpec::FromAttrs(const Attrs& attrs) {
  return {attrs.Int("output_height"),   attrs.Int("output_width"),    attrs.Int("sampling_ratio"),
          attrs.Float("spatial_scale"), attrs.Int("half_pixel") != 0, attrs.String("mode") == "max"};
}

std::span<const OpRow> SampleOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "GridSample",
       .inputs = {2, 2},
       .attrs = GridAttrs(false),
       .infer = GridSampleTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = GridSampleGradient,
       .evaluate = EvaluateGridSample,
       .precision = Precision::kFloat32},
      {.name = "GridSampleInputGrad",
       .inputs = {2, 2},
       .attrs = GridAttrs(true),
       .infer = GridSampleInputGradTypes,
       .precision = Precision::kFloat32,
       .is_gradient = true},
      {.name = "GridSampleGridGrad",
       .inputs = {3, 3},
       .attrs = GridAttrs(false),
       .infer = GridSampleGridGradTypes,
       .precision = Precision::kFloat32,
       .is_gradient = true},
      {.name = "RoiAlign",
       .inputs = {3, 3},
       .attrs = RoiAttrs(false),
       .infer = RoiAlignTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = RoiAlignGradient,
       .precision = Precision::kFloat32},
      {.name = "RoiAlignGrad",
       .inputs = {3, 4},
       .attrs = RoiAttrs(true),
       .infer = RoiAlignGradTypes,
       .precision = Precision::kFloat32,
       .is_gradient = true},
  };
  return *rows;
}

}  // namespace onnxtrain
