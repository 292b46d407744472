// Writes constants, and operators that move elements.
#include <limits>
#include <numeric>

#include "frontend/ops/export/onnx_export.h"

namespace onnxtrain {

absl::Status EmitConstant(OnnxWriter& s, const Node& node) {
  s.OpTo({s.Output(node)}, "Identity", {s.Constant(*node.attrs.Tensor("value"))});
  return absl::OkStatus();
}

absl::Status EmitReshape(OnnxWriter& s, const Node& node) {
  s.OpTo({s.Output(node)}, "Reshape", {s.Name(node.inputs[0]), s.Ints(s.shape(node.outputs[0]))},
         {{"allowzero", int64_t{1}}});
  return absl::OkStatus();
}

absl::Status EmitExpand(OnnxWriter& s, const Node& node) {
  s.OpTo({s.Output(node)}, "Expand", {s.Name(node.inputs[0]), s.Ints(s.shape(node.outputs[0]))});
  return absl::OkStatus();
}

absl::Status EmitSplit(OnnxWriter& s, const Node& node) {
  s.OpTo(s.Names(node.outputs), "Split", {s.Name(node.inputs[0]), s.Ints(node.attrs.Ints("sizes"))},
         {{"axis", node.attrs.Int("axis")}});
  return absl::OkStatus();
}

absl::Status EmitSlice(OnnxWriter& s, const Node& node) {
  const auto starts = node.attrs.Ints("starts"), sizes = node.attrs.Ints("sizes"), steps = node.attrs.Ints("steps");
  std::vector<int64_t> ends(starts.size()), axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = 0; i < starts.size(); ++i) {
    ends[i] = starts[i] + sizes[i] * steps[i];
    if (ends[i] < 0) ends[i] = std::numeric_limits<int64_t>::min();  // an end before the first element
  }
  s.OpTo({s.Output(node)}, "Slice",
         {s.Name(node.inputs[0]), s.Ints(starts), s.Ints(ends), s.Ints(axes), s.Ints(steps)});
  return absl::OkStatus();
}

namespace {

// Adds `updates` to zeros at positions along `axis`; `index` has the shape of `updates`.
std::string ScatterAdd(OnnxWriter& s, DType dtype, const Shape& shape, const std::string& index,
                       const std::string& updates, int64_t axis) {
  return s.Op("ScatterElements", {s.Zeros(dtype, shape), index, updates},
              {{"axis", axis}, {"reduction", std::string("add")}});
}

}  // namespace

// Processes one axis after the other: pads if the step is 1, otherwise scatters.
absl::Status EmitSliceGrad(OnnxWriter& s, const Node& node) {
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
  s.OpTo({s.Output(node)}, "Pad", {dx, s.Ints(pads)});
  return absl::OkStatus();
}

absl::Status EmitPad(OnnxWriter& s, const Node& node) {
  const DType dtype = s.graph().type(node.inputs[0]).dtype;
  const std::string value = s.Constant(HostTensor::Scalar(dtype, node.attrs.Float("value")));
  s.OpTo({s.Output(node)}, "Pad", {s.Name(node.inputs[0]), s.Ints(node.attrs.Ints("pads")), value});
  return absl::OkStatus();
}

// Omits attributes that ONNX lacks, such as the padding index.
absl::Status EmitGather(OnnxWriter& s, const Node& node) {
  s.OpTo({s.Output(node)}, "Gather", s.Names(node.inputs), {{"axis", node.attrs.Int("axis")}});
  return absl::OkStatus();
}

// Scatters into [before, extent, after] with one index per row.
absl::Status EmitGatherGrad(OnnxWriter& s, const Node& node) {
  const Shape& shape = s.shape(node.outputs[0]);
  const size_t axis = static_cast<size_t>(node.attrs.Int("axis"));
  const int64_t before = Product(std::span(shape).first(axis)), behind = Product(std::span(shape).subspan(axis + 1));
  const int64_t count = Product(s.shape(node.inputs[1]));
  const Shape rows = {before, count, behind};
  const std::string index = s.Op("Expand", {s.Reshape(s.Name(node.inputs[1]), {1, count, 1}), s.Ints(rows)});
  const std::string sums = ScatterAdd(s, s.graph().type(node.outputs[0]).dtype, {before, shape[axis], behind}, index,
                                      s.Reshape(s.Name(node.inputs[0]), rows), 1);
  s.OpTo({s.Output(node)}, "Reshape", {sums, s.Ints(shape)}, {{"allowzero", int64_t{1}}});
  return absl::OkStatus();
}

absl::Status EmitGatherElementsGrad(OnnxWriter& s, const Node& node) {
  const std::string sums = ScatterAdd(s, s.graph().type(node.outputs[0]).dtype, s.shape(node.outputs[0]),
                                      s.Name(node.inputs[1]), s.Name(node.inputs[0]), node.attrs.Int("axis"));
  s.OpTo({s.Output(node)}, "Identity", {sums});
  return absl::OkStatus();
}

absl::Status EmitTopK(OnnxWriter& s, const Node& node) {
  s.OpTo(s.Names(node.outputs), "TopK", {s.Name(node.inputs[0]), s.Ints({node.attrs.Int("k")})},
         Pick(node.attrs, {"axis", "largest"}));
  return absl::OkStatus();
}

}  // namespace onnxtrain
