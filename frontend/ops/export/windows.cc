// Writes convolutions, pooling, resampling and their gradients.
#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/resample.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {
namespace {

absl::Status CheckUnrounded(const OnnxWriter& s, const Node& node) {
  if (s.graph().type(node.inputs[0]).dtype == s.graph().type(node.outputs[0]).dtype) return absl::OkStatus();
  return Invalid("ONNX has no convolution of ", ToString(s.graph().type(node.inputs[0]).dtype), " to ",
                 ToString(s.graph().type(node.outputs[0]).dtype));
}

}  // namespace

absl::Status EmitConv(OnnxWriter& s, const Node& node) {
  RETURN_IF_ERROR(CheckUnrounded(s, node));
  s.OpTo({s.Output(node)}, "Conv", s.Names(node.inputs), Pick(node.attrs, {"strides", "pads", "dilations", "group"}));
  return absl::OkStatus();
}

namespace {

// Returns the number of elements after the last window along each axis.
Shape ElementsAfterWindows(const Windows& w, std::span<const int64_t> extents, std::span<const int64_t> counts) {
  Shape rest;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t padded = extents[i] + w.pads[i] + w.pads[i + w.axes()];
    rest.push_back(padded - (counts[i] - 1) * w.strides[i] - w.Reach(i));
  }
  return rest;
}

// Writes a transposed convolution whose output has these spatial extents. Pads the elements after the last window,
// which are 0, since output_padding must not exceed the stride.
std::string TransposeConv(OnnxWriter& s, const std::string& dy, std::span<const int64_t> counts, const std::string& w,
                          const Windows& windows, int64_t group, std::span<const int64_t> extents) {
  const Attrs attrs = {{"strides", windows.strides}, {"dilations", windows.dilations}, {"group", group}};
  const std::string whole = s.Op("ConvTranspose", {dy, w}, attrs);
  const Shape rest = ElementsAfterWindows(windows, extents, counts);
  const size_t axes = windows.axes();
  std::vector<int64_t> pads(2 * (axes + 2), 0);  // negative pads crop
  for (size_t i = 0; i < axes; ++i) {
    pads[i + 2] = -windows.pads[i];
    pads[axes + 4 + i] = rest[i] - windows.pads[i + axes];
  }
  return s.Op("Pad", {whole, s.Ints(pads)});
}

}  // namespace

absl::Status EmitConvTranspose(OnnxWriter& s, const Node& node) {
  RETURN_IF_ERROR(CheckUnrounded(s, node));
  const auto kernel = Spatial(s.shape(node.inputs[1]));
  ASSIGN_OR_RETURN(const Windows windows, ReadWindows(node.attrs, Shape(kernel.begin(), kernel.end())));
  const std::string dx =
      TransposeConv(s, s.Name(node.inputs[0]), Spatial(s.shape(node.inputs[0])), s.Name(node.inputs[1]), windows,
                    node.attrs.Int("group", 1), Spatial(s.shape(node.outputs[0])));
  s.OpTo({s.Output(node)}, "Identity", {dx});
  return absl::OkStatus();
}

namespace {

std::vector<int64_t> WithSpatialAxes(std::vector<int64_t> axes, size_t spatial) {
  const int64_t first = static_cast<int64_t>(axes.size());
  for (size_t i = 0; i < spatial; ++i) axes.push_back(first + static_cast<int64_t>(i));
  return axes;
}

Shape WithSpatial(Shape leading, std::span<const int64_t> spatial) {
  leading.insert(leading.end(), spatial.begin(), spatial.end());
  return leading;
}

}  // namespace

// Writes the gradient as a convolution of x with dy as kernel, after exchanging batch with channels and strides with
// dilations: [C/g, g·N, …] * [M, N, …] → [C/g, M, …], which is then transposed.
absl::Status EmitConvWeightGrad(OnnxWriter& s, const Node& node) {
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
  s.OpTo({s.Output(node)}, "Transpose", {cut}, {{"perm", swap}});
  return dy[1] == dw[0] ? absl::OkStatus() : absl::InternalError("channels of dy and dw differ");
}

// Converts indices: ONNX counts from the start of the tensor, the graph from the start of the plane.
absl::Status EmitMaxPool(OnnxWriter& s, const Node& node) {
  if (node.attrs.Int("index_in_window") != 0) return Invalid("ONNX has no index within the window");
  const std::string whole = StrCat(s.Output(node), "_index"), x = s.Name(node.inputs[0]);
  s.OpTo({s.Output(node), whole}, "MaxPool", {x}, Pick(node.attrs, {"kernel_shape", "strides", "pads", "dilations"}));
  const std::string plane = s.Ints({Product(Spatial(s.shape(node.inputs[0])))});
  s.OpTo({s.Name(node.outputs[1])}, "Mod", {whole, plane});
  return absl::OkStatus();
}

absl::Status EmitMaxPoolGrad(OnnxWriter& s, const Node& node) {
  const Shape &dx = s.shape(node.outputs[0]), &dy = s.shape(node.inputs[0]);
  if (!node.attrs.Ints("kernel_shape").empty()) return Invalid("ONNX has no index within the window");
  const Shape planes = {dy[0], dy[1], Product(Spatial(dy))};
  const std::string zeros = s.Zeros(s.graph().type(node.outputs[0]).dtype, {dx[0], dx[1], Product(Spatial(dx))});
  const std::string sums = s.Op(
      "ScatterElements", {zeros, s.Reshape(s.Name(node.inputs[1]), planes), s.Reshape(s.Name(node.inputs[0]), planes)},
      {{"axis", int64_t{2}}, {"reduction", std::string("add")}});
  s.OpTo({s.Output(node)}, "Reshape", {sums, s.Ints(dx)});
  return absl::OkStatus();
}

absl::Status EmitAveragePool(OnnxWriter& s, const Node& node) {
  const auto dilations = node.attrs.Ints("dilations");
  if (std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; }))
    return Invalid("dilated averages need a later opset than 18");
  s.OpTo({s.Output(node)}, "AveragePool", s.Names(node.inputs),
         Pick(node.attrs, {"kernel_shape", "strides", "pads", "count_include_pad"}));
  return absl::OkStatus();
}

namespace {

// Returns the number of elements of x in each window along one axis.
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

}  // namespace

// Distributes dy / (elements of the window) over the windows by a transposed convolution per channel.
absl::Status EmitAveragePoolGrad(OnnxWriter& s, const Node& node) {
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
  s.OpTo({s.Output(node)}, "Reshape", {spread, s.Ints(dx)});
  return absl::OkStatus();
}

namespace {

constexpr int64_t kMaxMatrixElements = int64_t{1} << 24;  // limit for the matrix of an axis

bool Selects(const Taps& taps) {
  const auto one = [](double weight) { return weight == 1; };
  return taps.most() == 1 && std::ssize(taps.index) == taps.out() && std::ranges::all_of(taps.weight, one);
}

// Returns the matrix [in, out] of the taps.
HostTensor MakeMatrix(const Taps& taps, DType dtype) {
  HostTensor matrix({dtype, {taps.in, taps.out()}});
  for (int64_t o = 0; o < taps.out(); ++o) {
    for (int64_t k = taps.begin[o]; k < taps.begin[o + 1]; ++k) {
      matrix.Set(taps.index[k] * taps.out() + o, taps.weight[k]);
    }
  }
  return matrix;
}

absl::StatusOr<std::string> EmitAxis(OnnxWriter& s, const std::string& x, const Type& type, const Taps& taps) {
  if (Selects(taps)) return s.Op("Gather", {x, s.Ints(taps.index)}, {{"axis", taps.axis}});
  if (taps.in * taps.out() > kMaxMatrixElements)
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

}  // namespace

// Writes, along each axis, a Gather if every output is one element, otherwise a product with the matrix of the taps.
absl::Status EmitResample(OnnxWriter& s, const Node& node) {
  const bool gradient = node.attrs.Has("input_sizes");
  const Type& type = s.graph().type(node.inputs[0]);
  std::string value = s.Name(node.inputs[0]);
  for (const Taps& taps : ResampleTaps(node.attrs, s.shape(gradient ? node.outputs[0] : node.inputs[0]))) {
    ASSIGN_OR_RETURN(value, EmitAxis(s, value, type, gradient ? taps.Transposed() : taps));
  }
  s.OpTo({s.Name(node.outputs[0])}, "Identity", {value});
  return absl::OkStatus();
}

}  // namespace onnxtrain
