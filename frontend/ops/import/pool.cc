// Imports pooling. MaxRoiPool uses a sparse table: the maximum over a rectangle is the maximum over four overlapping
// rectangles with power-of-two sides, which are precomputed. Regions that are known only at run time thus need no loop.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

int64_t Levels(int64_t extent) {
  int64_t levels = 1;
  while ((int64_t{1} << levels) <= extent) ++levels;
  return levels;
}

// Rounds half away from zero, as MaxRoiPool rounds regions.
Val Rounded(Val x) { return Unary("Sign", x) * Unary("Floor", Unary("Abs", x) + 0.5); }

Val Within(Val x, int64_t low, int64_t high) {
  return x ? x.b().Op("Clip", {x}, {{"min", static_cast<double>(low)}, {"max", static_cast<double>(high)}}) : x;
}

// The bins of all regions along one axis, [R,bins] each: the starts of two windows of 2^level elements that cover a
// bin, and whether the bin is empty.
struct RoiBins {
  Val first, second, level, empty;
};

RoiBins BinsAlong(Val begin, Val end, double scale, int64_t bins, int64_t extent) {
  HostTensor numbers({begin.dtype(), {1, bins}});
  for (int64_t i = 0; i < bins; ++i) numbers.Set(i, static_cast<double>(i));
  const Val at = begin.b().Constant(numbers);
  const Val start = Rounded(begin * scale), length = Rounded(end * scale) - start + 1.0;
  const Val bin = Binary("Max", length, Number(length, 1)) / static_cast<double>(bins);
  const Val low = Within(Unary("Floor", at * bin) + start, 0, extent);
  const Val high = Within(Unary("Ceil", (at + 1.0) * bin) + start, 0, extent);
  const Val count = high - low;
  Val level = ZerosLike(count), side = level + 1.0;
  for (int64_t k = 1; k < Levels(extent); ++k) {
    const double power = std::ldexp(1, static_cast<int>(k));
    const Val reaches = Cast(Binary("GreaterOrEqual", count, Number(count, power)), count.dtype());
    level = level + reaches;
    side = side + reaches * (power / 2);
  }
  const auto index = [&](Val x) { return Cast(Within(x, 0, extent - 1), DType::kInt64); };
  return {index(low), index(high - side), Cast(level, DType::kInt64), Less(count, 0.5)};
}

// Returns, for each level k, the maxima of 2^k elements starting at each element. Entries whose window exceeds the axis
// are meaningless and not read.
std::vector<Val> RunningMaxima(Val x, int64_t axis) {
  const int64_t extent = x.dim(static_cast<int>(axis));
  std::vector<Val> levels = {x};
  for (int64_t k = 1; k < Levels(extent); ++k) {
    const int64_t by = int64_t{1} << (k - 1);
    const Val last = levels.back();
    levels.push_back(Binary("Max", last, Concat({Slice(last, axis, by, extent - by), Slice(last, axis, 0, by)}, axis)));
  }
  return levels;
}

// Returns the table of maxima [N · levels of H · levels of W · H · W, C].
Val MaximaTable(Val x) {
  const int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
  std::vector<Val> all;
  for (const Val& rows : RunningMaxima(x, 2)) {
    for (const Val& level : RunningMaxima(rows, 3)) all.push_back(Reshape(level, {n, 1, c, h * w}));
  }
  const auto tables = static_cast<int64_t>(all.size());
  return Reshape(Transpose(Concat(std::move(all), 1), {0, 1, 3, 2}), {n * tables * h * w, c});
}

absl::Status CheckRegions(ImportContext& c, const std::vector<int64_t>& bins) {
  const Val x = c.in(0), rois = c.in(1);
  if (x.rank() != 4 || !IsFloat(x.dtype()) || rois.rank() != 2 || rois.dim(1) != 5 || rois.dtype() != x.dtype()) {
    return Invalid("cannot pool regions ", ToString(rois.type()), " of ", ToString(x.type()));
  }
  if (NumElements(x.shape()) == 0) return Invalid("there is nothing to pool in ", ToString(x.type()));
  if (bins.size() != 2 || bins[0] < 1 || bins[1] < 1)
    return Invalid("pooled_shape ", ToString(bins), " should be two extents");
  for (int64_t n : bins) RETURN_IF_ERROR(CheckHostConstant({x.dtype(), {n}}));
  return CheckShape({rois.dim(0), bins[0], bins[1], x.dim(1)});
}

}  // namespace

ImportOr ImportMaxRoiPool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  const std::vector<int64_t> bins = c.attrs().Ints("pooled_shape");
  RETURN_IF_ERROR(CheckRegions(c, bins));
  const Val x = c.in(0), rois = c.in(1);
  const int64_t regions = rois.dim(0), h = x.dim(2), w = x.dim(3);
  const double scale = c.attrs().Float("spatial_scale", 1);
  const auto side = [&](int64_t i) { return Slice(rois, 1, i, 1); };  // [R,1]
  const RoiBins y = BinsAlong(side(2), side(4), scale, bins[0], h),
                across = BinsAlong(side(1), side(3), scale, bins[1], w);
  const auto vertical = [&](Val v) { return Reshape(v, {regions, bins[0], 1}); };
  const auto horizontal = [&](Val v) { return Reshape(v, {regions, 1, bins[1]}); };
  const Val image = Reshape(Cast(Within(side(0), 0, x.dim(0) - 1), DType::kInt64), {regions, 1, 1});
  const Val table = ((image * static_cast<double>(Levels(h)) + vertical(y.level)) * static_cast<double>(Levels(w)) +
                     horizontal(across.level)) *
                    static_cast<double>(h * w);
  const Val maxima = MaximaTable(x);
  Val most;
  for (const Val& row : {y.first, y.second}) {
    for (const Val& column : {across.first, across.second}) {
      const Val index = table + vertical(row) * static_cast<double>(w) + horizontal(column);
      if (!index) return c.b().status();
      const Val corner = c.b().Op("Gather", {maxima, index}, {{"axis", int64_t{0}}});
      most = most ? Binary("Max", most, corner) : corner;
    }
  }
  const Val empty = Reshape(Binary("Or", vertical(y.empty), horizontal(across.empty)), {regions, bins[0], bins[1], 1});
  if (!most || !empty) return c.b().status();
  return One(Transpose(Where(empty, Number(most, 0), most), {0, 3, 1, 2}));
}

namespace {

struct Pool {
  Val x;
  Windows w;
  Shape overhang;   // extent of the last window beyond the end pads, under ceil_mode
  WindowAxes axes;  // axes of the result

  // Returns the windows with end pads extended by the overhang.
  Windows Extended() const {
    Windows e = w;
    for (size_t i = 0; i < w.axes(); ++i) e.pads[i + w.axes()] += overhang[i];
    return e;
  }
  bool Overhangs() const {
    return std::any_of(overhang.begin(), overhang.end(), [](int64_t o) { return o > 0; });
  }
};

// Shortens windows that are longer than an axis with its pads. ceil_mode allows them: PyTorch's EfficientNet pools a
// map of 7 × 7 by windows of 1280 × 1280.
void ClipSingleWindows(std::span<const int64_t> extents, Windows* w) {
  for (size_t i = 0; i < w->axes() && i < extents.size(); ++i) {
    const int64_t all = extents[i] + w->pads[i] + w->pads[i + w->axes()];
    const bool single = w->kernel[i] > all && w->kernel[i] - all < w->strides[i];
    if (single && w->dilations[i] == 1 && all > 0) w->kernel[i] = all;
  }
}

absl::StatusOr<Pool> ReadPool(ImportContext& c) {
  RETURN_IF_ERROR(RequireAnySpatial(c));
  const auto extents = Spatial(c.in(0).shape());
  Pool p;
  ASSIGN_OR_RETURN(Windows w, ImportWindows(c.attrs(), c.attrs().Ints("kernel_shape"), extents));
  ASSIGN_OR_RETURN(const Val x, CropNegativePads(c.in(0), &w));
  const bool ceil_mode = c.attrs().Int("ceil_mode") != 0;
  if (ceil_mode) ClipSingleWindows(Spatial(x.shape()), &w);
  ASSIGN_OR_RETURN(p.axes, FoldWindowAxes(x, std::move(w), true));
  p.x = p.axes.x;
  p.w = p.axes.w;
  p.overhang.assign(p.w.axes(), 0);
  if (ceil_mode) p.overhang = CeilModePads(p.w, Spatial(p.x.shape()));
  return p;
}

Val AveragePool(Val x, const Windows& w, bool count_include_pad) {
  Attrs attrs = PoolAttrs(w);
  attrs.Set("count_include_pad", int64_t{count_include_pad});
  return x ? x.b().Op("AveragePool", {x}, std::move(attrs)) : x;
}

// Converts the index of the row, row-major within a spatial plane, to ONNX's index, which counts through all planes and
// is column-major within a plane if storage_order is 1.
Val ColumnMajor(Val index, const Shape& extents) {
  Builder& b = index.b();
  auto scalar = [&](int64_t v) { return b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&v, 1})); };
  Shape forward(extents.size(), 1);  // column-major strides
  for (size_t i = 1; i < extents.size(); ++i) forward[i] = forward[i - 1] * extents[i - 1];
  const Shape backward = Strides(extents);
  Val sum;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Val coordinate = b.Op("Mod", {index / scalar(backward[i]), scalar(extents[i])});
    const Val term = coordinate * scalar(forward[i]);
    sum = sum ? sum + term : term;
  }
  return sum;
}

absl::StatusOr<Val> PlaneOffsets(Val x) {
  Shape planes(x.rank(), 1);
  planes[0] = x.dim(0);
  planes[1] = x.dim(1);
  ASSIGN_OR_RETURN(const Val plane, Iota(x.b(), NumElements(planes)));
  const int64_t size = NumElements(Shape(x.shape().begin() + 2, x.shape().end()));
  return Reshape(plane * x.b().Constant(HostTensor::FromInts({DType::kInt64, {}}, {&size, 1})), planes);
}

ImportOr ImportMaxPool(ImportContext& c) {
  ASSIGN_OR_RETURN(const Pool p, ReadPool(c));
  const DType dtype = p.x.dtype();
  const Val x = IsFloat(dtype) ? p.x : Cast(p.x, DType::kFloat32);  // ONNX allows only 8-bit integers, which are exact
  const std::vector<Val> y = c.b().Ops("MaxPool", {x}, PoolAttrs(p.Extended()));
  const bool wants_index = c.node().used.size() > 1 && c.node().used[1];
  if (!wants_index || !y[0]) return std::vector<Val>{p.axes.Restore(Cast(y[0], dtype)), Val()};
  if (p.axes.folded()) return Unsupported(StrCat("the Indices output of ", c.in(0).rank() - 2, " spatial axes"));
  if (p.x.id() != c.in(0).id()) return Unsupported("the Indices output with negative pads");
  const bool column_major = c.attrs().Int("storage_order") != 0;
  const Shape plane(x.shape().begin() + 2, x.shape().end());
  const Val index = column_major ? ColumnMajor(y[1], plane) : y[1];
  ASSIGN_OR_RETURN(const Val offsets, PlaneOffsets(x));
  return std::vector<Val>{Cast(y[0], dtype), index + offsets};
}

// Replaces the pads of the windows by zeros in the input.
Pool WithPadsMade(Pool p) {
  p.x = PadSpatial(p.x, p.w.pads, 0);
  p.w.pads.assign(p.w.pads.size(), 0);
  return p;
}

// Averages over whole windows, with zeros outside the input. Pads explicitly where needed, since the row requires each
// window to contain an input element.
Val WholeWindowMean(Val x, const Windows& w) {
  if (CheckWindowsOverlapInput(w, Spatial(x.shape())).ok()) return AveragePool(x, w, true);
  const Pool made = WithPadsMade({x, w, {}, {}});
  return AveragePool(made.x, made.w, true);
}

// Averages over windows with pads, but without the part beyond the end pads that ceil_mode adds.
Val AverageWithPads(const Pool& p) {
  if (!p.Overhangs()) return WholeWindowMean(p.x, p.w);
  const Pool made = WithPadsMade(p);
  return AveragePool(made.x, made.Extended(), false);
}

// Imports AveragePool, which divides by the number of elements of the window in the input or, with count_include_pad,
// in input and pads.
ImportOr ImportAveragePool(ImportContext& c) {
  ASSIGN_OR_RETURN(const Pool p, ReadPool(c));
  const bool include = c.attrs().Int("count_include_pad") != 0;
  return std::vector<Val>{p.axes.Restore(include ? AverageWithPads(p) : AveragePool(p.x, p.Extended(), false))};
}

struct Norm {
  double p;

  static absl::StatusOr<Norm> FromAttrs(const Attrs& attrs) {
    const double p =
        attrs.Has("p") && attrs.Find<double>("p") ? attrs.Float("p") : static_cast<double>(attrs.Int("p", 2));
    if (!(p > 0)) return Invalid("p = ", p, " should be positive");
    return Norm{p};
  }
  Val Power(Val x) const {
    if (p == 2) return x * x;
    const Val abs = x.b().Op("Abs", {x});
    return p == 1 ? abs : x.b().Op("Pow", {abs, x.b().Scalar(x.dtype(), p)});
  }
  // Returns a root whose gradient is 0 for windows of zeros, instead of 0·∞. Such windows are common after a Relu.
  Val Root(Val sum) const {
    if (p == 1 || !sum) return sum;
    const Val zero = Equal(sum, 0), safe = Where(zero, Number(sum, 1), sum);
    return Where(zero, Number(sum, 0), p == 2 ? Sqrt(safe) : Binary("Pow", safe, Number(sum, 1 / p)));
  }
};

ImportOr ImportLpPool(ImportContext& c) {
  ASSIGN_OR_RETURN(const Pool p, ReadPool(c));
  ASSIGN_OR_RETURN(const Norm norm, Norm::FromAttrs(c.attrs()));
  double count = 1;
  for (int64_t k : p.w.kernel) count *= static_cast<double>(k);
  return std::vector<Val>{p.axes.Restore(norm.Root(WholeWindowMean(norm.Power(p.x), p.Extended()) * count))};
}

ImportOr ImportGlobalAveragePool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.in(0).rank() < 3) return Invalid("expected spatial axes, got ", ToString(c.in(0).type()));
  return std::vector<Val>{ReduceMean(c.in(0), SpatialAxes(c.in(0)))};
}

ImportOr ImportGlobalMaxPool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.in(0).rank() < 3) return Invalid("expected spatial axes, got ", ToString(c.in(0).type()));
  return std::vector<Val>{ReduceMax(c.in(0), SpatialAxes(c.in(0)))};
}

ImportOr ImportGlobalLpPool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.in(0).rank() < 3) return Invalid("expected spatial axes, got ", ToString(c.in(0).type()));
  ASSIGN_OR_RETURN(const Norm norm, Norm::FromAttrs(c.attrs()));
  return std::vector<Val>{norm.Root(ReduceSum(norm.Power(c.in(0)), SpatialAxes(c.in(0))))};
}

}  // namespace

std::span<const OnnxOp> PoolImports() {
  static constexpr OnnxOp ops[] = {
      {"", "MaxPool", 1, 1, ImportMaxPool, {.keeps_channels = true}},
      {"", "AveragePool", 1, 1, ImportAveragePool, {.keeps_channels = true}},
      {"", "LpPool", 1, 1, ImportLpPool},
      {"", "GlobalAveragePool", 1, 1, ImportGlobalAveragePool, {.keeps_channels = true}},
      {"", "GlobalMaxPool", 1, 1, ImportGlobalMaxPool, {.keeps_channels = true}},
      {"", "GlobalLpPool", 1, 1, ImportGlobalLpPool},
  };
  return ops;
}

}  // namespace onnxtrain
