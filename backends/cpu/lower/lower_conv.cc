#include <optional>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"

namespace onnxtrain::cpu {
namespace {

using Ints = std::vector<int64_t>;
using Vals = std::vector<Val>;

// Returns the bf16 value from which an operand was cast, or kNoValue.
ValueId FindBf16Operand(const Graph& graph, ValueId v) {
  const Node* cast = graph.producer(v);
  const bool widened = cast != nullptr && cast->op == "Cast" && graph.type(cast->inputs[0]).dtype == DType::kBFloat16;
  return widened ? cast->inputs[0] : kNoValue;
}

// The operands of a convolution. Reads operands that were cast from bf16 as bf16: their products are exact in float32.
class ConvOperands {
 public:
  ConvOperands(const LoweringContext& c, ConvKind kind)
      : c_(c), kind_(kind), geometry_(MakeConvGeometry(kind, c.from(), c.node)) {
    const bool widened = HasBFloat16() && FindBf16Operand(c.from(), c.node.inputs[0]) != kNoValue &&
                         FindBf16Operand(c.from(), c.node.inputs[1]) != kNoValue;
    if (widened) is_bf16_ = IsMatMul() || FindChannelsLastWeights(kind, geometry_, DType::kBFloat16).has_value();
  }

  bool IsMatMul() const {
    return IsMatMulConv(c_.attrs(), kind_ == ConvKind::kWeightGrad ? c_.out().shape : c_.in(1).shape);
  }
  DType dtype() const { return is_bf16_ ? DType::kBFloat16 : DType::kFloat32; }
  Val Nhwc(size_t i) const { return c_.variants.Nhwc(Operand(i)); }
  Val Nchw(size_t i) const { return c_.variants.Nchw(Operand(i)); }
  // Returns operand i as row-major [N,…,C].
  Val Rows(size_t i) const {
    const Val x = Nhwc(i);
    return Reinterpret(x, {x.dtype(), PhysicalShape(x.type())});
  }
  Val PackedWeights() const { return Pack(*FindChannelsLastWeights(kind_, geometry_, dtype()), false); }
  Val Pack(const dnnl::memory::desc& layout, bool flipped) const {
    return c_.b().Op(
        "cpu.PackWeight", {Nchw(1)},
        {{"group", c_.attrs().Int("group", 1)}, {"layout", ToInts(layout)}, {"flipped", int64_t{flipped}}});
  }
  // Emits the operator; for bf16 operands, with a float32 result.
  Val Op(std::string_view op, Vals inputs, Attrs attrs) const {
    if (is_bf16_) attrs.Set("to", std::string("f32"));
    return c_.b().Op(op, std::move(inputs), std::move(attrs));
  }

 private:
  ValueId Operand(size_t i) const {
    return is_bf16_ ? FindBf16Operand(c_.from(), c_.node.inputs[i]) : c_.node.inputs[i];
  }

  const LoweringContext& c_;
  ConvKind kind_;
  ConvGeometry geometry_;
  bool is_bf16_ = false;
};

Val ToFloat(Val product) { return Cast(product, DType::kFloat32); }
Val ToMatrix(Val x) { return Reshape(x, {NumElements(x.shape()) / x.dim(-1), x.dim(-1)}); }
Val WeightMatrix(Val w) { return Reshape(w, {w.dim(0), w.dim(1)}); }
// Converts row-major [N,…,C] to the node's result, channels last.
Val FromRows(const LoweringContext& c, Val y) {
  return Reinterpret(y, {y.dtype(), c.out().shape, Layout::kChannelsLast});
}

// Returns the attributes of the forward convolution of dy with flipped weights that computes the backward data of a
// convolution at stride 1, or nothing.
std::optional<Attrs> FlippedConvAttrs(const LoweringContext& c, const Shape& w) {
  const Shape &y = c.in(0).shape, &x = c.out().shape;
  const Ints dilations = c.attrs().Ints("dilations"), strides = c.attrs().Ints("strides");
  const bool dense = std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 1; });
  if (c.attrs().Int("group", 1) != 1 || !dense) return std::nullopt;
  Ints pads = c.attrs().Ints("pads");
  for (size_t i = 0, axes = dilations.size(); i < axes; ++i) {
    const int64_t reach = dilations[i] * (w[2 + i] - 1);
    for (size_t end : {i, axes + i}) pads[end] = reach - pads[end];
    const bool same = y[2 + i] + pads[i] + pads[axes + i] - reach == x[2 + i];
    if (!same || pads[i] < 0 || pads[axes + i] < 0) return std::nullopt;
  }
  return Attrs{{"strides", strides}, {"dilations", dilations}, {"group", int64_t{1}}, {"pads", pads}};
}

// With oneDNN 2.6.3 on AVX-512, forward kernels of float32 take 0.8 to 0.95 times the time of backward data. In bf16
// both are equal within 5 %, except for short rows: 0.92 for rows of 14, 0.76 for rows of 7.
constexpr int64_t kShortRow = 16;
// With fewer input channels, the results of the flipped convolution fill no vector: LeNet's step takes 1.17 times as
// long.
constexpr int64_t kMinFlippedChannels = 16;

std::optional<Val> ConvBackwardDataAsForward(const LoweringContext& c, const ConvOperands& operands) {
  if (operands.dtype() == DType::kBFloat16 && c.out().shape.back() >= kShortRow) return std::nullopt;
  if (c.out().shape[1] < kMinFlippedChannels) return std::nullopt;
  const Shape w = FlippedWeights(c.in(1)).shape;
  const auto attrs = FlippedConvAttrs(c, w);
  if (!attrs) return std::nullopt;
  const ConvGeometry g = MakeConvGeometry(*attrs, c.in(0).shape, w, c.out().shape);
  const auto layout = FindChannelsLastWeights(ConvKind::kForward, g, operands.dtype());
  if (!layout) return std::nullopt;
  return operands.Op("Conv", {operands.Nhwc(0), operands.Pack(*layout, true)}, *attrs);
}

}  // namespace

Vals LowerConv(const LoweringContext& c) {
  const ConvOperands operands(c, ConvKind::kForward);
  const Val bias = c.nchw(2);
  if (!operands.IsMatMul()) {
    return {operands.Op("Conv", {operands.Nhwc(0), operands.PackedWeights(), bias}, c.attrs())};
  }
  const Val y = ToFloat(MatMul(operands.Rows(0), WeightMatrix(operands.Nchw(1)), false, true));
  return {FromRows(c, bias ? y + bias : y)};
}

Vals LowerConvTranspose(const LoweringContext& c) {
  const ConvOperands operands(c, ConvKind::kInputGrad);
  if (operands.IsMatMul()) return {FromRows(c, ToFloat(MatMul(operands.Rows(0), WeightMatrix(operands.Nchw(1)))))};
  if (const auto flipped = ConvBackwardDataAsForward(c, operands)) return {*flipped};
  return {operands.Op("ConvTranspose", {operands.Nhwc(0), operands.PackedWeights()}, c.attrs())};
}

Vals LowerConvWeightGrad(const LoweringContext& c) {
  const ConvOperands operands(c, ConvKind::kWeightGrad);
  if (!operands.IsMatMul()) return {operands.Op("ConvWeightGrad", {operands.Nhwc(0), operands.Nhwc(1)}, c.attrs())};
  const Shape shape = c.out().shape;
  return {Reshape(ToFloat(MatMul(ToMatrix(operands.Rows(1)), ToMatrix(operands.Rows(0)), true)), shape)};
}

}  // namespace onnxtrain::cpu
