#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "absl/status/status.h"
#include "frontend/base/status.h"
#include "frontend/onnx/write/emit.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/resample.h"
#include "frontend/ops/row.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMostElements = int64_t{1}

                                  << 24;  // of the matrix of an axis

bool Selects(const Taps& taps) {
  const auto one = [](double weight) { return weight == 1; };
  return taps.most() == 1 && std::ssize(taps.index) == taps.out() && std::ranges::all_of(taps.weight, one);
}

// [in, out]
HostTensor MakeMatrix(const Taps& taps, DType dtype) {
  HostTensor matrix({dtype, {taps.in, taps.out()}});
  for (int64_t o = 0; o < taps.out(); ++o) {
    for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) {
      matrix.Set(taps.index[k] * taps.out() + o, taps.weight[k]);
    }
  }
  return matrix;
}

absl::StatusOr<std::string> EmitAxis(OnnxEmitter& s, const std::string& x, const Type& type, const Taps& taps) {
  if (Selects(taps)) return s.Op("Gather", {x, s.Ints(taps.index)}, {{"axis", taps.axis}});
  if (taps.in * taps.out() > kMostElements)
    return Invalid("resizes ", taps.in, " to ", taps.out(), " elements, which is too large for a matrix of taps");
  const int last = type.rank() - 1;
  std::vector<int64_t> swap(type.rank());
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[taps.axis], swap[last]);
  const bool moves = taps.axis != last;
  const std::string rows = moves ? s.Transpose(x, swap) : x;
  const std::string product = s.Op("MatMul", {rows, s.Constant(MakeMatrix(taps, type.dtype))});
  return moves ? s.Transpose(product, swap) : product;
}

// Resample and ResampleGrad: along each axis a Gather where every output is one element, else a product with the matrix
// of the taps.
absl::Status EmitResample(OnnxEmitter& s, const Node& node) {
  const bool gradient = node.attrs.Has("input_sizes");
  const Type& type = s.graph().type(node.inputs[0]);
  std::string value = s.Name(node.inputs[0]);
  for (const Taps& taps : ResampleTaps(node.attrs, s.shape(gradient ? node.outputs[0] : node.inputs[0]))) {
    ASSIGN_OR_RETURN(value, EmitAxis(s, value, type, gradient ? taps.Transposed() : taps));
  }
  s.OpTo({s.Name(node.outputs[0])}, "Identity", {value});
  return absl::OkStatus();
}

using EmitFn = absl::Status (*)(OnnxEmitter& s, const Node& node);

std::string Output(const OnnxEmitter& s, const Node& node) { return s.Name(node.outputs[0]); }

absl::Status EmitSame(OnnxEmitter& s, const Node& node) {
  s.OpTo(s.Names(node.outputs), node.op, s.Names(node.inputs), node.attrs);
  return absl::OkStatus();
}

// Without attributes that ONNX lacks, such as the padding index.
absl::Status EmitGather(OnnxEmitter& s, const Node& node) {
  s.OpTo({Output(s, node)}, "Gather", s.Names(node.inputs), {{"axis", node.attrs.Int("axis")}});
  return absl::OkStatus();
}

absl::Status EmitConstant(OnnxEmitter& s, const Node& node) {
  s.OpTo({Output(s, node)}, "Identity", {s.Constant(*node.attrs.Tensor("value"))});
  return absl::OkStatus();
}

// PRelu of ONNX broadcasts the slope alone.
absl::Status EmitPRelu(OnnxEmitter& s, const Node& node) {
  const std::string x = s.Name(node.inputs[0]);
  const std::string zero = s.Constant(HostTensor::Scalar(s.graph().type(node.inputs[0]).dtype, 0));
  s.OpTo({Output(s, node)}, "Where", {s.Op("Less", {x, zero}), s.Op("Mul", {x, s.Name(node.inputs[1])}), x});
  return absl::OkStatus();
}

// Kahan's corrections: u = 1 + x loses the low digits of x, and log(u)/(u − 1) at the rounded u is exact. Denominators
// are 1 where the quotient is not used, so that gradients stay finite.
absl::Status EmitLog1p(OnnxEmitter& s, const Node& node) {
  const std::string x = s.Name(node.inputs[0]);
  const std::string one = s.Constant(HostTensor::Scalar(s.graph().type(node.inputs[0]).dtype, 1));
  const std::string u = s.Op("Add", {x, one}), log = s.Op("Log", {u});
  const std::string tiny = s.Op("Equal", {u, one});
  const std::string taken = s.Op("Where", {tiny, one, s.Op("Sub", {u, one})});
  const std::string corrected = s.Op("Mul", {log, s.Op("Div", {x, taken})});
  const std::string large = s.Op("Where", {s.Op("Greater", {x, one}), log, corrected});
  s.OpTo({Output(s, node)}, "Where", {tiny, x, large});
  return absl::OkStatus();
}

absl::Status EmitExpm1(OnnxEmitter& s, const Node& node) {
  const DType dtype = s.graph().type(node.inputs[0]).dtype;
  const std::string x = s.Name(node.inputs[0]), one = s.Constant(HostTensor::Scalar(dtype, 1));
  const std::string u = s.Op("Exp", {x}), minus = s.Op("Sub", {u, one});
  const std::string tiny = s.Op("Equal", {u, one});
  const std::string far = s.Op("Greater", {s.Op("Abs", {x}), s.Constant(HostTensor::Scalar(dtype, 0.5))});
  const std::string taken = s.Op("Where", {s.Op("Or", {tiny, far}), one, s.Op("Log", {u})});
  const std::string corrected = s.Op("Mul", {minus, s.Op("Div", {x, taken})});
  s.OpTo({Output(s, node)}, "Where", {tiny, x, s.Op("Where", {far, minus, corrected})});
  return absl::OkStatus();
}

absl::Status EmitRsqrt(OnnxEmitter& s, const Node& node) {
  s.OpTo({Output(s, node)}, "Reciprocal", {s.Op("Sqrt", {s.Name(node.inputs[0])})});
  return absl::OkStatus();
}

absl::Status EmitCast(OnnxEmitter& s, const Node& node) {
  const int64_t to = DTypeToOnnx(s.graph().type(node.outputs[0]).dtype);
  s.OpTo({Output(s, node)}, "Cast", {s.Name(node.inputs[0])}, {{"to", to}});
  return absl::OkStatus();
}

absl::Status EmitClip(OnnxEmitter& s, const Node& node) {
  const auto bound = [&](const char* name, double none) {
    const double value = node.attrs.Float(name, none);
    return value == none ? "" : s.Constant(HostTensor::Scalar(s.graph().type(node.inputs[0]).dtype, value));
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string min = bound("min", -kInfinity), max = bound("max", kInfinity);
  s.OpTo({Output(s, node)}, "Clip", {s.Name(node.inputs[0]), min, max});
  return absl::OkStatus();
}

absl::Status EmitReduce(OnnxEmitter& s, const Node& node) {
  std::vector<std::string> inputs = s.Names(node.inputs);
  if (const auto axes = node.attrs.Ints("axes"); !axes.empty()) inputs.push_back(s.Ints(axes));
  s.OpTo({Output(s, node)}, node.op, inputs, {{"keepdims", node.attrs.Int("keepdims", 1)}});
  return absl::OkStatus();
}

absl::Status EmitCumSum(OnnxEmitter& s, const Node& node) {
  Attrs attrs = node.attrs;
  attrs.Erase("axis");
  const std::string axis = s.Constant(HostTensor::Scalar(DType::kInt64, static_cast<double>(node.attrs.Int("axis"))));
  s.OpTo({Output(s, node)}, "CumSum", {s.Name(node.inputs[0]), axis}, attrs);
  return absl::OkStatus();
}

// Forward and backward pass share the mask of a stream. ONNX draws its own numbers: no node reads the random key.
absl::Status EmitDropout(OnnxEmitter& s, const Node& node) {
  const std::string x = s.Name(node.inputs[0]), mask = s.Prefixed(StrCat(kMaskName, node.attrs.Int("stream")));
  const DType dtype = s.graph().type(node.inputs[0]).dtype;
  const double ratio = node.attrs.Float("ratio");
  if (s.TakeName(mask)) {
    const std::string uniform = s.Op("RandomUniformLike", {x}, {{"low", 0.0}, {"high", 1.0}});
    const std::string kept = s.Op("GreaterOrEqual", {uniform, s.Constant(HostTensor::Scalar(dtype, ratio))});
    const std::string scale = s.Constant(HostTensor::Scalar(dtype, 1 / (1 - ratio)));
    s.OpTo({mask}, "Where", {kept, scale, s.Constant(HostTensor::Scalar(dtype, 0))});
  }
  s.OpTo({Output(s, node)}, "Mul", {x, mask});
  return absl::OkStatus();
}

// --- products

std::string MatrixOperand(OnnxEmitter& s, ValueId value, bool transposed) {
  if (!transposed) return s.Name(value);
  std::vector<int64_t> perm(s.shape(value).size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return s.Transpose(s.Name(value), perm);
}

absl::Status EmitMatMul(OnnxEmitter& s, const Node& node) {
  const std::string a = MatrixOperand(s, node.inputs[0], node.attrs.Int("trans_a") != 0);
  const std::string b = MatrixOperand(s, node.inputs[1], node.attrs.Int("trans_b") != 0);
  s.OpTo({Output(s, node)}, "MatMul", {a, b});
  return absl::OkStatus();
}

absl::Status CheckUnrounded(const OnnxEmitter& s, const Node& node) {
  if (s.graph().type(node.inputs[0]).dtype == s.graph().type(node.outputs[0]).dtype) return absl::OkStatus();
  return Invalid("ONNX has no convolution of ", ToString(s.graph().type(node.inputs[0]).dtype), " to ",
                 ToString(s.graph().type(node.outputs[0]).dtype));
}

Attrs Pick(const Attrs& attrs, std::initializer_list<const char*> names) {
  Attrs picked;
  for (const auto& [name, value] : attrs) {
    if (std::find(names.begin(), names.end(), name) != names.end()) picked.Set(name, value);
  }
  return picked;
}

absl::Status EmitConv(OnnxEmitter& s, const Node& node) {
  RETURN_IF_ERROR(CheckUnrounded(s, node));
  s.OpTo({Output(s, node)}, "Conv", s.Names(node.inputs), Pick(node.attrs, {"strides", "pads", "dilations", "group"}));
  return absl::OkStatus();
}

// How many elements lie behind the last window along each axis.
Shape BehindWindows(const Windows& w, std::span<const int64_t> extents, std::span<const int64_t> counts) {
  Shape rest;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t padded = extents[i] + w.pads[i] + w.pads[i + w.axes()];
    rest.push_back(padded - (counts[i] - 1) * w.strides[i] - w.Reach(i));
  }
  return rest;
}

// A transposed convolution whose output has these spatial extents. The elements behind the last window are 0, and are
// padded: output_padding may not exceed the stride.
std::string TransposeConv(OnnxEmitter& s, const std::string& dy, std::span<const int64_t> counts, const std::string& w,
                          const Windows& windows, int64_t group, std::span<const int64_t> extents) {
  const Attrs attrs = {{"strides", windows.strides}, {"dilations", windows.dilations}, {"group", group}};
  const std::string whole = s.Op("ConvTranspose", {dy, w}, attrs);
  const Shape rest = BehindWindows(windows, extents, counts);
  const size_t axes = windows.axes();
  std::vector<int64_t> pads(2 * (axes + 2), 0);  // negative ones crop
  for (size_t i = 0; i < axes; ++i) {
    pads[i + 2] = -windows.pads[i];
    pads[axes + 4 + i] = rest[i] - windows.pads[i + axes];
  }
  return s.Op("Pad", {whole, s.Ints(pads)});
}

absl::Status EmitConvTranspose(OnnxEmitter& s, const Node& node) {
  RETURN_IF_ERROR(CheckUnrounded(s, node));
  const auto kernel = Spatial(s.shape(node.inputs[1]));
  ASSIGN_OR_RETURN(const Windows windows, ReadWindows(node.attrs, Shape(kernel.begin(), kernel.end())));
  const std::string dx =
      TransposeConv(s, s.Name(node.inputs[0]), Spatial(s.shape(node.inputs[0])), s.Name(node.inputs[1]), windows,
                    node.attrs.Int("group", 1), Spatial(s.shape(node.outputs[0])));
  s.OpTo({Output(s, node)}, "Identity", {dx});
  return absl::OkStatus();
}

std::vector<int64_t> WithSpatialAxes(std::vector<int64_t> axes, size_t spatial) {
  const int64_t first = static_cast<int64_t>(axes.size());
  for (size_t i = 0; i < spatial; ++i) axes.push_back(first + static_cast<int64_t>(i));
  return axes;
}

Shape WithSpatial(Shape leading, std::span<const int64_t> spatial) {
  leading.insert(leading.end(), spatial.begin(), spatial.end());
  return leading;
}

// The convolution of x with dy as the kernel, batch and channels exchanged, strides and dilations exchanged:
// [C/g, g·N, …] * [M, N, …] → [C/g, M, …], transposed.
absl::Status EmitConvWeightGrad(OnnxEmitter& s, const Node& node) {
  RETURN_IF_ERROR(CheckUnrounded(s, node));
  const Shape &x = s.shape(node.inputs[0]), &dy = s.shape(node.inputs[1]), &dw = s.shape(node.outputs[0]);
  const int64_t group = node.attrs.Int("group", 1);
  const size_t spatial = x.size() - 2;
  const std::vector<int64_t> swap = WithSpatialAxes({1, 0}, spatial);
  const std::string parts = s.Reshape(s.Name(node.inputs[0]), WithSpatial({x[0], group, x[1] / group}, Spatial(x)));
  const std::string channels = s.Reshape(s.Transpose(parts, WithSpatialAxes({2, 1, 0}, spatial)),
                                         WithSpatial({x[1] / group, group * x[0]}, Spatial(x)));
  const std::string kernel = s.Transpose(s.Name(node.inputs[1]), swap);
  const std::string whole = s.Op("Conv", {channels, kernel},
                                 {{"strides", node.attrs.Ints("dilations")},
                                  {"dilations", node.attrs.Ints("strides")},
                                  {"pads", node.attrs.Ints("pads")},
                                  {"group", group}});
  std::vector<int64_t> axes(spatial);
  std::iota(axes.begin(), axes.end(), 2);
  const auto wanted = Spatial(dw);
  const std::string cut = s.Op(
      "Slice", {whole, s.Ints(std::vector<int64_t>(spatial, 0)), s.Ints({wanted.begin(), wanted.end()}), s.Ints(axes)});
  s.OpTo({Output(s, node)}, "Transpose", {cut}, {{"perm", swap}});
  return dy[1] == dw[0] ? absl::OkStatus() : absl::InternalError("channels of dy and dw differ");
}

// --- pooling

int64_t Product(std::span<const int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

// ONNX counts indices from the start of the tensor, the graph from the start of the plane.
absl::Status EmitMaxPool(OnnxEmitter& s, const Node& node) {
  if (node.attrs.Int("index_in_window") != 0) return Invalid("ONNX has no index within the window");
  const std::string whole = StrCat(Output(s, node), "_index"), x = s.Name(node.inputs[0]);
  s.OpTo({Output(s, node), whole}, "MaxPool", {x}, Pick(node.attrs, {"kernel_shape", "strides", "pads", "dilations"}));
  const std::string plane = s.Ints({Product(Spatial(s.shape(node.inputs[0])))});
  s.OpTo({s.Name(node.outputs[1])}, "Mod", {whole, plane});
  return absl::OkStatus();
}

absl::Status EmitMaxPoolGrad(OnnxEmitter& s, const Node& node) {
  const Shape &dx = s.shape(node.outputs[0]), &dy = s.shape(node.inputs[0]);
  if (!node.attrs.Ints("kernel_shape").empty()) return Invalid("ONNX has no index within the window");
  const Shape planes = {dy[0], dy[1], Product(Spatial(dy))};
  const std::string zeros = s.Zeros(s.graph().type(node.outputs[0]).dtype, {dx[0], dx[1], Product(Spatial(dx))});
  const std::string sums = s.Op(
      "ScatterElements", {zeros, s.Reshape(s.Name(node.inputs[1]), planes), s.Reshape(s.Name(node.inputs[0]), planes)},
      {{"axis", int64_t{2}}, {"reduction", std::string("add")}});
  s.OpTo({Output(s, node)}, "Reshape", {sums, s.Ints(dx)});
  return absl::OkStatus();
}

absl::Status EmitAveragePool(OnnxEmitter& s, const Node& node) {
  const auto dilations = node.attrs.Ints("dilations");
  if (std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; }))
    return Invalid("dilated averages need a later opset than 18");
  s.OpTo({Output(s, node)}, "AveragePool", s.Names(node.inputs),
         Pick(node.attrs, {"kernel_shape", "strides", "pads", "count_include_pad"}));
  return absl::OkStatus();
}

// Elements of x in each window along one axis.
std::vector<double> InnerElements(const Windows& w, size_t axis, int64_t extent, int64_t count) {
  std::vector<double> inner(count, 0);
  for (int64_t o = 0; o < count; ++o) {
    for (int64_t k = 0; k < w.kernel[axis]; ++k) {
      const int64_t at = o * w.strides[axis] + k * w.dilations[axis] - w.pads[axis];
      inner[o] += at >= 0 && at < extent ? 1 : 0;
    }
  }
  return inner;
}

// Spreads dy / (elements of the window) over the windows, with a transposed convolution per channel.
absl::Status EmitAveragePoolGrad(OnnxEmitter& s, const Node& node) {
  const Shape &dx = s.shape(node.outputs[0]), &dy = s.shape(node.inputs[0]);
  const DType dtype = s.graph().type(node.outputs[0]).dtype;
  ASSIGN_OR_RETURN(const Windows w, ReadWindows(node.attrs, node.attrs.Ints("kernel_shape")));
  std::string share = s.Reshape(s.Name(node.inputs[0]), WithSpatial({dy[0] * dy[1], 1}, Spatial(dy)));
  for (size_t i = 0; i < w.axes(); ++i) {
    Shape along(dy.size(), 1);
    along[i + 2] = dy[i + 2];
    const auto inner = node.attrs.Int("count_include_pad") != 0
                           ? std::vector<double>(dy[i + 2], static_cast<double>(w.kernel[i]))
                           : InnerElements(w, i, dx[i + 2], dy[i + 2]);
    share = s.Op("Div", {share, s.Constant(HostTensor::FromDoubles({dtype, along}, inner))});
  }
  const std::string ones = s.Constant(HostTensor::Filled({dtype, WithSpatial({1, 1}, w.kernel)}, 1));
  const std::string spread = TransposeConv(s, share, Spatial(dy), ones, w, 1, Spatial(dx));
  s.OpTo({Output(s, node)}, "Reshape", {spread, s.Ints(dx)});
  return absl::OkStatus();
}

// --- shapes and indices

absl::Status EmitReshape(OnnxEmitter& s, const Node& node) {
  s.OpTo({Output(s, node)}, "Reshape", {s.Name(node.inputs[0]), s.Ints(s.shape(node.outputs[0]))},
         {{"allowzero", int64_t{1}}});
  return absl::OkStatus();
}

absl::Status EmitExpand(OnnxEmitter& s, const Node& node) {
  s.OpTo({Output(s, node)}, "Expand", {s.Name(node.inputs[0]), s.Ints(s.shape(node.outputs[0]))});
  return absl::OkStatus();
}

absl::Status EmitSplit(OnnxEmitter& s, const Node& node) {
  s.OpTo(s.Names(node.outputs), "Split", {s.Name(node.inputs[0]), s.Ints(node.attrs.Ints("sizes"))},
         {{"axis", node.attrs.Int("axis")}});
  return absl::OkStatus();
}

absl::Status EmitSlice(OnnxEmitter& s, const Node& node) {
  const auto starts = node.attrs.Ints("starts"), sizes = node.attrs.Ints("sizes"), steps = node.attrs.Ints("steps");
  std::vector<int64_t> ends(starts.size()), axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = 0; i < starts.size(); ++i) {
    ends[i] = starts[i] + sizes[i] * steps[i];
    if (ends[i] < 0) ends[i] = std::numeric_limits<int64_t>::min();  // before the first element
  }
  s.OpTo({Output(s, node)}, "Slice",
         {s.Name(node.inputs[0]), s.Ints(starts), s.Ints(ends), s.Ints(axes), s.Ints(steps)});
  return absl::OkStatus();
}

// Adds `updates` to zeros at positions along `axis`; `index` has the shape of `updates`.
std::string ScatterAdd(OnnxEmitter& s, DType dtype, const Shape& shape, const std::string& index,
                       const std::string& updates, int64_t axis) {
  return s.Op("ScatterElements", {s.Zeros(dtype, shape), index, updates},
              {{"axis", axis}, {"reduction", std::string("add")}});
}

// One axis after the other: pads where the step is 1, scatters otherwise.
absl::Status EmitSliceGrad(OnnxEmitter& s, const Node& node) {
  const auto starts = node.attrs.Ints("starts"), steps = node.attrs.Ints("steps");
  const Shape& whole = s.shape(node.outputs[0]);
  Shape shape = s.shape(node.inputs[0]);
  const DType dtype = s.graph().type(node.outputs[0]).dtype;
  std::string dx = s.Name(node.inputs[0]);
  std::vector<int64_t> pads(2 * whole.size(), 0);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (steps[i] == 1) {
      pads[i] = starts[i];
      pads[i + whole.size()] = whole[i] - starts[i] - shape[i];
      continue;
    }
    std::vector<int64_t> at(shape[i]);
    for (size_t k = 0; k < at.size(); ++k) at[k] = starts[i] + static_cast<int64_t>(k) * steps[i];
    Shape along(whole.size(), 1), target = shape;
    along[i] = shape[i];
    target[i] = whole[i];
    const std::string index = s.Op("Expand", {s.Reshape(s.Ints(at), along), s.Ints(shape)});
    dx = ScatterAdd(s, dtype, target, index, dx, static_cast<int64_t>(i));
    shape = target;
  }
  s.OpTo({Output(s, node)}, "Pad", {dx, s.Ints(pads)});
  return absl::OkStatus();
}

absl::Status EmitPad(OnnxEmitter& s, const Node& node) {
  const DType dtype = s.graph().type(node.inputs[0]).dtype;
  const std::string value = s.Constant(HostTensor::Scalar(dtype, node.attrs.Float("value")));
  s.OpTo({Output(s, node)}, "Pad", {s.Name(node.inputs[0]), s.Ints(node.attrs.Ints("pads")), value});
  return absl::OkStatus();
}

// As [before, extent, behind] with one index per row.
absl::Status EmitGatherGrad(OnnxEmitter& s, const Node& node) {
  const Shape& shape = s.shape(node.outputs[0]);
  const size_t axis = static_cast<size_t>(node.attrs.Int("axis"));
  const int64_t before = Product(std::span(shape).first(axis)), behind = Product(std::span(shape).subspan(axis + 1));
  const int64_t count = Product(s.shape(node.inputs[1]));
  const Shape rows = {before, count, behind};
  const std::string index = s.Op("Expand", {s.Reshape(s.Name(node.inputs[1]), {1, count, 1}), s.Ints(rows)});
  const std::string sums = ScatterAdd(s, s.graph().type(node.outputs[0]).dtype, {before, shape[axis], behind}, index,
                                      s.Reshape(s.Name(node.inputs[0]), rows), 1);
  s.OpTo({Output(s, node)}, "Reshape", {sums, s.Ints(shape)}, {{"allowzero", int64_t{1}}});
  return absl::OkStatus();
}

absl::Status EmitGatherElementsGrad(OnnxEmitter& s, const Node& node) {
  const std::string sums = ScatterAdd(s, s.graph().type(node.outputs[0]).dtype, s.shape(node.outputs[0]),
                                      s.Name(node.inputs[1]), s.Name(node.inputs[0]), node.attrs.Int("axis"));
  s.OpTo({Output(s, node)}, "Identity", {sums});
  return absl::OkStatus();
}

absl::Status EmitTopK(OnnxEmitter& s, const Node& node) {
  s.OpTo(s.Names(node.outputs), "TopK", {s.Name(node.inputs[0]), s.Ints({node.attrs.Int("k")})},
         Pick(node.attrs, {"axis", "largest"}));
  return absl::OkStatus();
}

const std::map<std::string, EmitFn, std::less<>>& Emitters() {
  static const std::map<std::string, EmitFn, std::less<>> emitters = {
      {"Constant", EmitConstant},
      {"Add", EmitSame},
      {"Sub", EmitSame},
      {"Mul", EmitSame},
      {"Div", EmitSame},
      {"Pow", EmitSame},
      {"Min", EmitSame},
      {"Max", EmitSame},
      {"Mod", EmitSame},
      {"PRelu", EmitPRelu},
      {"Equal", EmitSame},
      {"Less", EmitSame},
      {"LessOrEqual", EmitSame},
      {"Greater", EmitSame},
      {"GreaterOrEqual", EmitSame},
      {"And", EmitSame},
      {"Or", EmitSame},
      {"Xor", EmitSame},
      {"Not", EmitSame},
      {"Where", EmitSame},
      {"Softmax", EmitSame},
      {"LogSoftmax", EmitSame},
      {"ArgMax", EmitSame},
      {"ArgMin", EmitSame},
      {"Transpose", EmitSame},
      {"Concat", EmitSame},
      {"Gather", EmitGather},
      {"GatherElements", EmitSame},
      {"ScatterElements", EmitSame},
      {"Log1p", EmitLog1p},
      {"Expm1", EmitExpm1},
      {"Rsqrt", EmitRsqrt},
      {"Cast", EmitCast},
      {"Clip", EmitClip},
      {"Dropout", EmitDropout},
      {"ReduceSum", EmitReduce},
      {"ReduceMean", EmitReduce},
      {"ReduceMax", EmitReduce},
      {"ReduceMin", EmitReduce},
      {"ReduceProd", EmitReduce},
      {"CumSum", EmitCumSum},
      {"MatMul", EmitMatMul},
      {"Conv", EmitConv},
      {"ConvTranspose", EmitConvTranspose},
      {"ConvWeightGrad", EmitConvWeightGrad},
      {"MaxPool", EmitMaxPool},
      {"MaxPoolGrad", EmitMaxPoolGrad},
      {"AveragePool", EmitAveragePool},
      {"AveragePoolGrad", EmitAveragePoolGrad},
      {"Resample", EmitResample},
      {"ResampleGrad", EmitResample},
      {"Reshape", EmitReshape},
      {"Expand", EmitExpand},
      {"Split", EmitSplit},
      {"Slice", EmitSlice},
      {"SliceGrad", EmitSliceGrad},
      {"Pad", EmitPad},
      {"GatherGrad", EmitGatherGrad},
      {"GatherElementsGrad", EmitGatherElementsGrad},
      {"TopK", EmitTopK},
  };
  return emitters;
}

// The operator of the table, else the ONNX operator of the same name where the row has no decomposition.
EmitFn FindEmitter(const Node& node) {
  const auto found = Emitters().find(node.op);
  if (found != Emitters().end()) return found->second;
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->onnx != nullptr && row->decompose == nullptr ? EmitSame : nullptr;
}

}  // namespace

bool HasEmitter(const Node& node) { return FindEmitter(node) != nullptr; }

absl::Status Emit(OnnxEmitter& emitter, const Node& node) {
  const EmitFn emit = FindEmitter(node);
  return emit == nullptr ? Invalid("standard ONNX has no operator for it") : emit(emitter, node);
}

}  // namespace onnxtrain
