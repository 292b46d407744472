// Imports Resize and Upsample, and builds cubic GridSample over three spatial axes from primitives, as a weighted sum
// of 64 elements (over two axes, backends have kernels). The arithmetic along one axis is the same as in sample.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/resample.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr double kA = -0.75;  // parameter of the kernel of Keys (1981)

// The kernel at distances d ≤ 1 (Near) and 1 ≤ d ≤ 2 (Far).
Val Near(Val d) { return (d * (kA + 2) - (kA + 3)) * d * d + 1.0; }
Val Far(Val d) { return ((d * kA - 5 * kA) * d + 8 * kA) * d - 4 * kA; }

Val Clipped(Val x, double low, double high) { return x ? x.b().Op("Clip", {x}, {{"min", low}, {"max", high}}) : x; }
Val Remainder(Val x, double by) { return x ? x.b().Op("Mod", {x, Number(x, by)}, {{"fmod", int64_t{1}}}) : x; }

// Maps positions outside the axis to positions inside according to the padding mode.
Val Inside(Val at, const SampleSpec& spec, int64_t n) {
  if (spec.padding == SamplePadding::kZeros) return at;
  const double low = spec.align_corners ? 0 : -0.5;
  const auto span = static_cast<double>(spec.align_corners ? n - 1 : n);
  if (spec.padding == SamplePadding::kReflection && span > 0) {
    const Val distance = Unary("Abs", at - low), flips = Unary("Floor", distance / span),
              rest = Remainder(distance, span);
    at = Where(Equal(Remainder(flips, 2), 0), rest + low, (span + low) - rest);
  }
  return Clipped(at, 0, static_cast<double>(n - 1));
}

// The four elements read along one axis and their weights, [N,P,4] each.
struct FourTaps {
  Val index, weight;
};

// Returns the taps for grid coordinates g [N,P], in −1 … 1, along an axis of n elements.
FourTaps ComputeTaps(Val g, const SampleSpec& spec, int64_t n) {
  const auto extent = static_cast<double>(n);
  Val at = spec.align_corners ? (g + 1.0) * ((extent - 1) / 2) : ((g + 1.0) * extent - 1.0) / 2.0;
  at = Where(Less(Unary("Abs", at), 1e9), at, Number(at, -100));  // moves NaN and far positions just outside
  const Val base = Unary("Floor", at), r = at - base;
  const std::array<Val, 4> weights = {Far(r + 1.0), Near(r), Near(1.0 - r), Far(2.0 - r)};
  std::vector<Val> index, weight;
  for (int k = 0; k < 4; ++k) {
    const Val read = Inside(base + static_cast<double>(k - 1), spec, n);
    const Val inside = Binary("And", Binary("GreaterOrEqual", read, Number(read, 0)), Less(read, extent));
    const Shape one = {g.dim(0), g.dim(1), 1};
    index.push_back(Reshape(Cast(Masked(inside, read), DType::kInt64), one));
    weight.push_back(Reshape(Masked(inside, weights[k]), one));
  }
  return {Concat(std::move(index), 2), Concat(std::move(weight), 2)};
}

}  // namespace

absl::StatusOr<Val> SampleCubicVolume(Val x, Val grid, const SampleSpec& spec) {
  if (grid.rank() != 5 || grid.dim(0) != x.dim(0) || grid.dim(4) != 3 || NumElements(x.shape()) == 0) {
    return Invalid("a grid ", ToString(grid.type()), " does not fit to ", ToString(x.type()));
  }
  const int64_t n = x.dim(0), channels = x.dim(1), places = grid.dim(1) * grid.dim(2) * grid.dim(3);
  const int64_t plane = x.dim(2) * x.dim(3) * x.dim(4);
  RETURN_IF_ERROR(CheckShape({n, places, 64, channels}));
  ASSIGN_OR_RETURN(const Val images, Iota(x.b(), n));
  Val index = Reshape(images, {n, 1, 1, 1, 1}), weight;
  for (int a = 0; a < 3; ++a) {
    const FourTaps taps = ComputeTaps(Reshape(Slice(grid, 4, 2 - a, 1), {n, places}), spec, x.dim(2 + a));
    Shape along = {n, places, 1, 1, 1};
    along[2 + a] = 4;
    index = index * static_cast<double>(x.dim(2 + a)) + Reshape(taps.index, along);
    const Val w = Reshape(taps.weight, along);
    weight = weight ? weight * w : w;
  }
  if (!index || !weight) return x.b().status();
  const Val rows = Reshape(Transpose(Reshape(x, {n, channels, plane}), {0, 2, 1}), {n * plane, channels});
  const Val read = x.b().Op("Gather", {rows, Reshape(index, {n, places, 64})}, {{"axis", int64_t{0}}});
  const Val sum = ReduceSum(read * Reshape(weight, {n, places, 64, 1}), {2}, false);
  return Reshape(Transpose(sum, {0, 2, 1}), {n, channels, grid.dim(1), grid.dim(2), grid.dim(3)});
}

namespace {

// The mapping of one axis by Resize or Upsample. Scales, sizes and regions are known at import, so every coordinate
// mode becomes four numbers per axis: output o is at position (o + a)·b/c + d of the input.
struct AxisPlan {
  int64_t axis = 0, in = 0, out = 0;
  double scale = 1;           // the given scale, or out/in if sizes are given
  double length = 0;          // the output extent before rounding to an integer
  double num = 1, den = 1;    // 1/scale as a ratio; in/out if the scale is that ratio up to rounding
  double start = 0, end = 1;  // region of interest

  bool Identity() const { return in == out && num == den && start == 0 && end == 1; }
};

using Position = std::array<double, 4>;
using Place = Position (*)(const AxisPlan&);

Position HalfPixel(const AxisPlan& p) { return {0.5, p.num, p.den, -0.5}; }
Position Asymmetric(const AxisPlan& p) { return {0, p.num, p.den, 0}; }
Position HalfPixelForNearest(const AxisPlan& p) { return {0.5, p.num, p.den, 0}; }
Position PytorchHalfPixel(const AxisPlan& p) { return p.out > 1 ? HalfPixel(p) : Position{0, 0, 1, 0}; }

Position AlignCorners(const AxisPlan& p) {
  if (p.length == 1) return {0, 0, 1, 0};
  return {0, static_cast<double>(p.in - 1), p.length - 1, 0};
}

Position HalfPixelSymmetric(const AxisPlan& p) {
  // The shift is half of the part of the input that the output does not cover; exact if the scale is a power of two.
  const double uncovered = static_cast<double>(p.in) - static_cast<double>(p.out) / p.scale;
  return {0.5, p.num, p.den, uncovered / 2 - 0.5};
}

Position CropAndResize(const AxisPlan& p) {
  const auto last = static_cast<double>(p.in - 1);
  if (p.length == 1) return {0, 0, 1, 0.5 * (p.start + p.end) * last};
  return {0, (p.end - p.start) * last, p.length - 1, p.start * last};
}

struct Coordinates {
  std::string_view name;
  Place place;
};
constexpr Coordinates kCoordinates[] = {
    {"half_pixel", HalfPixel},
    {"asymmetric", Asymmetric},
    {"align_corners", AlignCorners},
    {"pytorch_half_pixel", PytorchHalfPixel},
    {"half_pixel_symmetric", HalfPixelSymmetric},
    {"tf_half_pixel_for_nn", HalfPixelForNearest},
    {"tf_crop_and_resize", CropAndResize},
};

absl::StatusOr<Place> FindPlace(const std::string& name) {
  for (const Coordinates& c : kCoordinates) {
    if (c.name == name) return c.place;
  }
  return Invalid("coordinate_transformation_mode '", name, "' is unknown");
}

constexpr double kLargest = int64_t{1} << 31;

// Restores ratios such as 1/3 that exporters round to float32, since the rounding would move coordinates off elements.
void SetScale(AxisPlan* p, double scale) {
  p->scale = scale;
  p->length = scale * static_cast<double>(p->in);
  const auto out = static_cast<double>(p->out);
  const bool exact = std::fabs(p->length - out) <= 1e-6 * out;
  p->num = exact ? static_cast<double>(p->in) : 1;
  p->den = exact ? out : scale;
}

absl::Status ScaleAxis(AxisPlan* p, double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) return Invalid("scale ", scale, " should be positive");
  const float length = static_cast<float>(scale) * static_cast<float>(p->in);  // in float32, as in other runtimes
  if (length >= kLargest) return Invalid("axis ", p->axis, " of extent ", p->in, " scaled by ", scale, " is too large");
  p->out = static_cast<int64_t>(std::floor(length));
  SetScale(p, scale);
  return absl::OkStatus();
}

absl::Status SizeAxis(AxisPlan* p, int64_t size) {
  if (size < 0 || static_cast<double>(size) >= kLargest)
    return Invalid("size ", size, " of axis ", p->axis, " is out of range");
  p->out = size;
  p->scale = p->in == 0 ? 1 : static_cast<double>(size) / static_cast<double>(p->in);
  p->length = static_cast<double>(size);
  p->num = static_cast<double>(p->in);
  p->den = static_cast<double>(size);
  return absl::OkStatus();
}

// Uses one scale for all axes: the smallest or largest of the scales that the sizes imply.
absl::Status KeepAspectRatio(std::vector<AxisPlan>* plans, const std::string& policy) {
  if (policy == "stretch" || plans->empty()) return absl::OkStatus();
  if (policy != "not_larger" && policy != "not_smaller")
    return Invalid("keep_aspect_ratio_policy '", policy, "' is unknown");
  const auto by_scale = [](const AxisPlan& a, const AxisPlan& b) { return a.scale < b.scale; };
  const auto [least, most] = std::minmax_element(plans->begin(), plans->end(), by_scale);
  const double scale = policy == "not_larger" ? least->scale : most->scale;
  for (AxisPlan& p : *plans) {
    const double length = std::floor(scale * static_cast<double>(p.in) + 0.5);
    if (!(length < kLargest)) return Invalid("axis ", p.axis, " scaled by ", scale, " is too large");
    p.out = static_cast<int64_t>(length);
    SetScale(&p, scale);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AxisPlan>> ReadAxes(ImportContext& c) {
  const Val x = c.in(0);
  std::vector<int64_t> axes(x.rank());
  for (int i = 0; i < x.rank(); ++i) axes[i] = i;
  axes = c.attrs().Ints("axes", axes);
  ASSIGN_OR_RETURN(axes, NormalizeAxes(axes, x.rank()));
  std::vector<AxisPlan> plans;
  for (int64_t axis : axes) plans.push_back({.axis = axis, .in = x.dim(static_cast<int>(axis))});
  return plans;
}

absl::Status ApplyScales(const std::vector<double>& scales, std::vector<AxisPlan>* plans) {
  if (scales.size() != plans->size()) return Invalid("has ", scales.size(), " scales for ", plans->size(), " axes");
  for (size_t i = 0; i < scales.size(); ++i) RETURN_IF_ERROR(ScaleAxis(&(*plans)[i], scales[i]));
  return absl::OkStatus();
}

absl::Status ApplySizes(const std::vector<int64_t>& sizes, std::vector<AxisPlan>* plans) {
  if (sizes.size() != plans->size()) return Invalid("has ", sizes.size(), " sizes for ", plans->size(), " axes");
  for (size_t i = 0; i < sizes.size(); ++i) RETURN_IF_ERROR(SizeAxis(&(*plans)[i], sizes[i]));
  return absl::OkStatus();
}

bool HasElements(ImportContext& c, size_t i) { return c.has(i) && c.in(i).type().elements() > 0; }

absl::Status ApplyRegion(ImportContext& c, std::vector<AxisPlan>* plans) {
  if (!HasElements(c, 1)) return Invalid("tf_crop_and_resize needs the input roi");
  ASSIGN_OR_RETURN(const std::vector<double> roi, c.KnownDoubles(1, "roi"));
  const size_t n = plans->size();
  if (roi.size() != 2 * n) return Invalid("roi has ", roi.size(), " entries for ", n, " axes");
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(roi[i]) || !std::isfinite(roi[n + i])) return Invalid("roi is not finite");
    (*plans)[i].start = roi[i];
    (*plans)[i].end = roi[n + i];
  }
  return absl::OkStatus();
}

// Returns the attributes of a Resample over the axes in `plans`, which are those that change.
Attrs ResampleAttrs(const std::vector<AxisPlan>& plans, Place place, Attrs attrs, bool antialias) {
  std::vector<int64_t> axes, sizes;
  std::vector<double> position, stretch;
  for (const AxisPlan& p : plans) {
    const Position at = place(p);
    axes.push_back(p.axis);
    sizes.push_back(p.out);
    position.insert(position.end(), at.begin(), at.end());
    stretch.push_back(antialias ? std::max(1.0, 1 / p.scale) : 1.0);
  }
  attrs.Set("axes", axes);
  attrs.Set("sizes", sizes);
  attrs.Set("position", position);
  attrs.Set("stretch", stretch);
  return attrs;
}

// Resamples any element type. Gathers nearest elements of integers; other modes compute integers in float32 and
// truncate.
Val ResampleAny(Val x, Attrs attrs) {
  if (!x || attrs.Ints("axes").empty()) return x;
  if (IsFloat(x.dtype())) return x.b().Op("Resample", {x}, std::move(attrs));
  if (attrs.String("mode") != "nearest")
    return Cast(ResampleAny(Cast(x, DType::kFloat32), std::move(attrs)), x.dtype());
  for (const Taps& taps : ResampleTaps(attrs, x.shape())) x = GatherConstant(x, taps.index, taps.axis);
  return x;
}

// Returns a tensor with `value` at coordinates outside the input, else 0. Invalid if all coordinates are inside.
absl::StatusOr<Val> Extrapolated(Val x, const Attrs& attrs, double value) {
  Val inside;
  bool anywhere = false;
  for (const Taps& taps : ResampleTaps(attrs, x.shape())) {
    Shape shape(x.rank(), 1);
    shape[taps.axis] = taps.out();
    HostTensor along({x.dtype(), shape});
    for (int64_t o = 0; o < taps.out(); ++o) along.Set(o, taps.begin[o + 1] > taps.begin[o] ? 1 : 0);
    anywhere |= static_cast<int64_t>(taps.index.size()) < taps.out() || taps.most() > 1;
    const Val factor = x.b().Constant(along);
    inside = inside ? inside * factor : factor;
  }
  if (!anywhere || !inside) return Val();
  return (1.0 - inside) * value;
}

// Fails on sizes that the row would reject, before tables of these sizes are allocated.
absl::Status CheckPlans(Val x, const std::vector<AxisPlan>& plans) {
  Shape y = x.shape();
  for (const AxisPlan& p : plans) {
    if (p.in == 0 && p.out > 0) return Invalid("cannot resize axis ", p.axis, " from 0 to ", p.out);
    y[p.axis] = p.out;
  }
  RETURN_IF_ERROR(CheckShape(y));
  for (const AxisPlan& p : plans) {
    RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {p.out, 4}}));
  }
  return absl::OkStatus();
}

std::vector<AxisPlan> Changing(std::vector<AxisPlan> plans) {
  std::erase_if(plans, [](const AxisPlan& p) { return p.Identity(); });
  std::sort(plans.begin(), plans.end(), [](const AxisPlan& a, const AxisPlan& b) { return a.axis < b.axis; });
  return plans;
}

absl::StatusOr<std::string> ReadMode(const Attrs& attrs) {
  static const std::map<std::string, std::string, std::less<>> modes = {
      {"nearest", "nearest"}, {"linear", "linear"}, {"bilinear", "linear"}, {"cubic", "cubic"}};
  const std::string name = attrs.String("mode", "nearest");
  const auto it = modes.find(name);
  if (it == modes.end()) return Invalid("mode '", name, "' is none of nearest, linear, cubic");
  return it->second;
}

absl::StatusOr<std::vector<AxisPlan>> PlansOfResize(ImportContext& c, bool crops) {
  RETURN_IF_ERROR(c.has(0) ? absl::OkStatus() : Invalid("input 0 is missing"));
  ASSIGN_OR_RETURN(std::vector<AxisPlan> plans, ReadAxes(c));
  if (HasElements(c, 2)) {
    ASSIGN_OR_RETURN(const std::vector<double> scales, c.KnownDoubles(2, "scales"));
    RETURN_IF_ERROR(ApplyScales(scales, &plans));
  } else {
    if (!HasElements(c, 3) && !plans.empty()) return Invalid("has neither scales nor sizes");
    if (HasElements(c, 3)) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, c.KnownInts(3, "sizes"));
      RETURN_IF_ERROR(ApplySizes(sizes, &plans));
      RETURN_IF_ERROR(KeepAspectRatio(&plans, c.attrs().String("keep_aspect_ratio_policy", "stretch")));
    }
  }
  if (crops) RETURN_IF_ERROR(ApplyRegion(c, &plans));
  // The ONNX standard, PyTorch and runtimes align corners by the integer length; ONNX's test data by the unrounded one.
  for (AxisPlan& p : plans) {
    if (!c.conformance) p.length = static_cast<double>(p.out);
    if (p.out == 0) p.scale = p.length = p.num = p.den = 1;
  }
  RETURN_IF_ERROR(CheckPlans(c.in(0), plans));
  return Changing(std::move(plans));
}

ImportOr ImportResize11(ImportContext& c) {
  const Attrs& a = c.attrs();
  const std::string coordinates = a.String("coordinate_transformation_mode", "half_pixel");
  const bool crops = coordinates == "tf_crop_and_resize", antialias = a.Int("antialias") != 0;
  ASSIGN_OR_RETURN(const Place place, FindPlace(coordinates));
  ASSIGN_OR_RETURN(const std::string mode, ReadMode(a));
  ASSIGN_OR_RETURN(const std::vector<AxisPlan> plans, PlansOfResize(c, crops));
  if (plans.empty()) return One(c.in(0));
  const std::string rounding = a.String("nearest_mode", "round_prefer_floor");
  if (rounding != "floor" && rounding != "ceil" && rounding != "round_prefer_floor" &&
      rounding != "round_prefer_ceil") {
    return Invalid("nearest_mode '", rounding, "' is unknown");
  }
  const bool wide = mode == "cubic" || (mode == "linear" && antialias);  // makes no difference for two taps
  const Attrs filter = {{"mode", mode},
                        {"rounding", mode == "nearest" ? rounding : std::string("floor")},
                        {"cubic_a", mode == "cubic" ? a.Float("cubic_coeff_a", -0.75) : -0.75},
                        {"exclude_outside", int64_t{wide && a.Int("exclude_outside") != 0}},
                        {"zero_outside", int64_t{crops}}};
  const Attrs attrs = ResampleAttrs(plans, place, filter, antialias && mode != "nearest");
  const double value = crops ? a.Float("extrapolation_value") : 0;
  if (!crops) return One(ResampleAny(c.in(0), attrs));
  const DType dtype = c.in(0).dtype();
  const Val x = IsFloat(dtype) ? c.in(0) : Cast(c.in(0), DType::kFloat32);
  const Val y = ResampleAny(x, attrs);
  RETURN_IF_ERROR(c.b().status());
  Val outside;
  if (value != 0) {
    ASSIGN_OR_RETURN(outside, Extrapolated(x, attrs, value));
  }
  return One(Cast(outside ? y + outside : y, dtype));
}

// Imports Resize before opset 11, and Upsample: coordinates are asymmetric, and `nearest` rounds down or, along an axis
// that shrinks, up.
ImportOr ImportByScales(ImportContext& c, const std::vector<double>& scales) {
  ASSIGN_OR_RETURN(const std::string mode, ReadMode(c.attrs()));
  if (mode == "cubic") return Invalid("mode 'cubic' came with opset 11");
  ASSIGN_OR_RETURN(std::vector<AxisPlan> plans, ReadAxes(c));
  RETURN_IF_ERROR(ApplyScales(scales, &plans));
  RETURN_IF_ERROR(CheckPlans(c.in(0), plans));
  plans = Changing(std::move(plans));
  const auto shrinking =
      std::stable_partition(plans.begin(), plans.end(), [](const AxisPlan& p) { return p.scale >= 1; });
  const Attrs filter = {{"mode", mode}};
  const Val grown = ResampleAny(c.in(0), ResampleAttrs({plans.begin(), shrinking}, Asymmetric, filter, false));
  RETURN_IF_ERROR(c.b().status());
  Attrs behind = filter;
  if (mode == "nearest") behind.Set("rounding", std::string("ceil"));
  return One(ResampleAny(grown, ResampleAttrs({shrinking, plans.end()}, Asymmetric, behind, false)));
}

ImportOr ImportResize(ImportContext& c) {
  if (c.since(11, true, c.num_inputs() > 2)) return ImportResize11(c);
  if (!c.has(0)) return Invalid("input 0 is missing");
  ASSIGN_OR_RETURN(const std::vector<double> scales, c.KnownDoubles(1, "scales"));
  return ImportByScales(c, scales);
}

ImportOr ImportUpsample(ImportContext& c) {
  if (!c.has(0)) return Invalid("input 0 is missing");
  if (c.has(1)) {
    ASSIGN_OR_RETURN(const std::vector<double> scales, c.KnownDoubles(1, "scales"));
    return ImportByScales(c, scales);
  }
  const Attrs& a = c.attrs();
  if (a.Has("scales")) return ImportByScales(c, a.Floats("scales"));
  if (!a.Has("height_scale") || !a.Has("width_scale")) return Invalid("has no scales");
  return ImportByScales(c, {1, 1, a.Float("height_scale"), a.Float("width_scale")});
}

}  // namespace

std::span<const OnnxOp> ResampleImports() {
  static constexpr OnnxOp ops[] = {
      {"", "Resize", 1, 4, ImportResize, {.takes_numbers = true, .extents_input = 3}},
      {"", "Upsample", 1, 2, ImportUpsample, {.takes_numbers = true}},
  };
  return ops;
}

}  // namespace onnxtrain
