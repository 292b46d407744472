#include <algorithm>
#include <numeric>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/nn.h"
#include "frontend/ops/import/window_axes.h"

namespace onnxtrain {
namespace {

struct Pool {
  Val x;
  Windows w;
  Shape overhang;   // beyond the end pads, by ceil_mode
  WindowAxes axes;  // those of the result

  // The windows with end pads that hold the overhang.
  Windows Extended() const {
    Windows e = w;
    for (size_t i = 0; i < w.axes(); ++i) e.pads[i + w.axes()] += overhang[i];
    return e;
  }
  bool Overhangs() const {
    return std::any_of(overhang.begin(), overhang.end(), [](int64_t o) { return o > 0; });
  }
};

// Shortens windows that are longer than an axis with its pads, of which ceil_mode has one: PyTorch's EfficientNet pools
// its map of 7 × 7 by windows of 1280 × 1280.
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

// --- MaxPool

// The row's index counts row-major within one spatial plane. ONNX's counts through all planes, and within a plane
// column-major if storage_order says so.
Val ColumnMajor(Val index, const Shape& extents) {
  Builder& b = index.b();
  auto scalar = [&](int64_t v) { return b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&v, 1})); };
  Shape forward(extents.size(), 1);  // strides of the column-major order
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

ImportResult ImportMaxPool(ImportContext& c) {
  ASSIGN_OR_RETURN(const Pool p, ReadPool(c));
  const DType dtype = p.x.dtype();
  const Val x = IsFloat(dtype) ? p.x : Cast(p.x, DType::kFloat32);  // exact for the 8-bit integers that ONNX allows
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

// --- AveragePool, LpPool

// The pads become zeros of the input.
Pool WithPadsMade(Pool p) {
  p.x = PadSpatial(p.x, p.w.pads, 0);
  p.w.pads.assign(p.w.pads.size(), 0);
  return p;
}

// The mean over whole windows, zeros beyond the input. The row wants each window to hold an element of its input.
Val WholeWindowMean(Val x, const Windows& w) {
  if (CheckWindowsOverlapInput(w, Spatial(x.shape())).ok()) return AveragePool(x, w, true);
  const Pool made = WithPadsMade({x, w, {}, {}});
  return AveragePool(made.x, made.w, true);
}

// What a window reaches beyond the end pads (by ceil_mode) does not count.
Val AverageWithPads(const Pool& p) {
  if (!p.Overhangs()) return WholeWindowMean(p.x, p.w);
  const Pool made = WithPadsMade(p);
  return AveragePool(made.x, made.Extended(), false);
}

// ONNX divides by the elements of a window that lie in the input and, with count_include_pad, in the pads.
ImportResult ImportAveragePool(ImportContext& c) {
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
  // Windows of zeros are common behind a Relu: the gradient there is 0, not 0·∞.
  Val Root(Val sum) const {
    if (p == 1 || !sum) return sum;
    const Val zero = Equal(sum, 0), safe = Where(zero, Number(sum, 1), sum);
    return Where(zero, Number(sum, 0), p == 2 ? Sqrt(safe) : Binary("Pow", safe, Number(sum, 1 / p)));
  }
};

ImportResult ImportLpPool(ImportContext& c) {
  ASSIGN_OR_RETURN(const Pool p, ReadPool(c));
  ASSIGN_OR_RETURN(const Norm norm, Norm::FromAttrs(c.attrs()));
  double count = 1;
  for (int64_t k : p.w.kernel) count *= static_cast<double>(k);
  return std::vector<Val>{p.axes.Restore(norm.Root(WholeWindowMean(norm.Power(p.x), p.Extended()) * count))};
}

// --- Global pooling

ImportResult ImportGlobalAveragePool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.in(0).rank() < 3) return Invalid("expected spatial axes, got ", ToString(c.in(0).type()));
  return std::vector<Val>{ReduceMean(c.in(0), SpatialAxes(c.in(0)))};
}

ImportResult ImportGlobalMaxPool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.in(0).rank() < 3) return Invalid("expected spatial axes, got ", ToString(c.in(0).type()));
  return std::vector<Val>{ReduceMax(c.in(0), SpatialAxes(c.in(0)))};
}

ImportResult ImportGlobalLpPool(ImportContext& c) {
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
