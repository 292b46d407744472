// Imports operators on quantized tensors, and the quantizers of QONNX that Brevitas, HAWQ and QKeras export
// (https://github.com/fastmachinelearning/qonnx, docs/qonnx-custom-ops), which round floats to a grid of any number of
// bits and return floats. Operators on quantized tensors become float arithmetic on grid points, which is exact while
// sums are below 2^24, followed by rounding to the grid of the result.
#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

constexpr double kMaxBits = 32;

struct Rounding {
  std::string_view mode, op;
};
constexpr Rounding kRoundings[] = {{"ROUND", "Round"}, {"HALF_EVEN", "Round"}, {"FLOOR", "Floor"}, {"CEIL", "Ceil"}};

// Returns the canonical operator for the attribute rounding_mode.
absl::StatusOr<std::string_view> RoundingOp(const ImportContext& c) {
  const std::string mode = c.attrs().String("rounding_mode", "ROUND");
  for (const Rounding& r : kRoundings) {
    if (mode == r.mode) return r.op;
  }
  return Unsupported(StrCat("the rounding mode '", Printable(mode), "'"));
}

struct Bounds {
  double low, high;
};

absl::StatusOr<Bounds> ReadBounds(ImportContext& c) {
  ASSIGN_OR_RETURN(const double bits, KnownDouble(c, 3, "the bit width"));
  const bool is_signed = c.attrs().Int("signed", 1) != 0, narrow = c.attrs().Int("narrow", 0) != 0;
  if (!(bits >= (is_signed && narrow ? 2 : 1) && bits <= kMaxBits)) return Invalid("the bit width is ", bits);
  const double range = std::exp2(is_signed ? bits - 1 : bits);
  if (is_signed) return Bounds{narrow ? 1 - range : -range, range - 1};
  return Bounds{0, narrow ? range - 2 : range - 1};
}

// Imports Quant of x, scale, zero point and bit width. Scale and zero point broadcast against x and are not trained.
ImportOr ImportQuant(ImportContext& c) {
  const Val x = c.in(0);
  if (!IsFloat(x.dtype())) return Invalid("cannot quantize ", ToString(x.type()));
  ASSIGN_OR_RETURN(const std::string_view round, RoundingOp(c));
  ASSIGN_OR_RETURN(const Bounds bounds, ReadBounds(c));
  const Val scale = Cast(FixedInput(c, 1), x.dtype()), zero = Cast(FixedInput(c, 2), x.dtype());
  const Attrs range = {{"min", bounds.low}, {"max", bounds.high}};
  const Val clipped = c.b().Op("Clip", {x / scale + zero}, range);
  return One((StraightThrough(Unary(round, clipped), clipped) - zero) * scale);
}

// Imports BipolarQuant of x and scale: sign(x)·scale, with sign(0) = 1. The gradient passes to x within [−scale, scale]
// (Courbariaux et al., 2016, arXiv:1602.02830).
ImportOr ImportBipolarQuant(ImportContext& c) {
  const Val x = c.in(0);
  if (!IsFloat(x.dtype())) return Invalid("cannot quantize ", ToString(x.type()));
  const Val scale = Cast(FixedInput(c, 1), x.dtype());
  const Val clipped = c.b().Op("Clip", {x / scale}, {{"min", -1.0}, {"max", 1.0}});
  if (!clipped) return c.b().status();
  const auto all = [&](double number) { return Expand(Number(x, number), clipped.shape()); };
  return One(StraightThrough(Where(Less(clipped, 0.0), all(-1), all(1)), clipped) * scale);
}

}  // namespace

std::span<const OnnxOp> QonnxImports() {
  static constexpr OnnxOp ops[] = {
      {"qonnx.custom_op.general", "Quant", 4, 4, ImportQuant, {.takes_numbers = true}},
      {"qonnx.custom_op.general", "BipolarQuant", 2, 2, ImportBipolarQuant, {.takes_numbers = true}},
      {"onnx.brevitas", "Quant", 4, 4, ImportQuant, {.takes_numbers = true}},
      {"onnx.brevitas", "BipolarQuant", 2, 2, ImportBipolarQuant, {.takes_numbers = true}},
      {"finn.custom_op.general", "Quant", 4, 4, ImportQuant, {.takes_numbers = true}},
      {"finn.custom_op.general", "BipolarQuant", 2, 2, ImportBipolarQuant, {.takes_numbers = true}},
  };
  return ops;
}

namespace {

constexpr size_t kNone = QuantizedWeight::kNone;

absl::StatusOr<Val> First(ImportOr results) {
  if (!results.ok()) return results.status();
  return results->empty() ? Val() : results->front();
}

// Multiplies x [N,M,…] by one scale, or by one for each of the M channels.
Val TimesChannels(Val x, Val scale) {
  if (!x || !scale || scale.rank() == 0) return x * scale;
  Shape shape(x.rank() - 1, 1);
  shape[0] = scale.type().elements();
  return x * Reshape(scale, std::move(shape));
}

// Imports QLinearConv of x, w and y, each with scale and zero point, and a bias.
ImportOr ImportQLinearConv(ImportContext& c) {
  ASSIGN_OR_RETURN(const QuantizedInput x, ReadQuantized(c, 0, 1, 2));
  ASSIGN_OR_RETURN(const QuantizedInput w, ReadQuantized(c, 3, 4, 5, 0));
  ASSIGN_OR_RETURN(Val bias, ReadQuantizedBias(c, 8, 1, 4));
  bias = Cast(bias, x.scale.dtype());
  ASSIGN_OR_RETURN(Val y, First(ImportAs(c, "", "Conv", {x.Centered(), w.Centered(), bias}, c.attrs())));
  y = TimesChannels(y * x.scale, w.scale);
  ASSIGN_OR_RETURN(const Val q, Quantize(c, y, 6, 7));
  return One(q);
}

absl::StatusOr<Val> Product(ImportContext& c, Val a, Val b) { return First(ImportAs(c, "", "MatMul", {a, b}, {})); }

// Returns x·B·scale of the quantized matrix B that starts at input `tensor`, with scale and zero point at the others.
absl::StatusOr<Val> ScaledProduct(ImportContext& c, Val x, Val x_scale, size_t tensor, size_t scale, size_t zero) {
  if (const auto stored = ReadStoredMatrix(c, tensor, scale, zero, 1, 0)) {
    ASSIGN_OR_RETURN(const Val y, Product(c, x, Dequantize(*stored, x.dtype())));
    return y * x_scale;
  }
  ASSIGN_OR_RETURN(const QuantizedInput b, ReadQuantized(c, tensor, scale, zero, -1));
  ASSIGN_OR_RETURN(const Val y, Product(c, x, b.Centered()));
  return y * x_scale * b.scale;
}

// Imports QLinearMatMul. Scales are per tensor or, for a, per row and, for b, per column.
ImportOr ImportQLinearMatMul(ImportContext& c) {
  ASSIGN_OR_RETURN(const QuantizedInput a, ReadQuantized(c, 0, 1, 2, -2));
  ASSIGN_OR_RETURN(const Val y, ScaledProduct(c, a.Centered(), a.scale, 3, 4, 5));
  ASSIGN_OR_RETURN(const Val q, Quantize(c, y, 6, 7));
  return One(q);
}

// Returns a float weight for the integers of input 1 if the reader of the file has added the scale of the matrix
// product as input 4. Invalid without that scale, or if scale and zero point are not constant along the columns.
Val ProductWeight(ImportContext& c, const Grid& grid) {
  constexpr size_t kScale = 4, kZero = 3;
  const Val q = c.in(1);
  const HostTensor *scale = c.has(kScale) ? c.Known(kScale) : nullptr, *zero = c.has(kZero) ? c.Known(kZero) : nullptr;
  if (scale == nullptr || (zero == nullptr && c.has(kZero)) || q.constant() == nullptr) return Val();
  const auto layout = ScaleLayout::Create(q.shape(), scale->shape(), -1, 0);
  if (!layout.ok() || (zero != nullptr && !layout->Fits(zero->shape()))) return Val();
  const Val divisor = layout->Along(c.b().Constant(*scale));
  const Val offset = zero == nullptr ? Val() : layout->Along(c.b().Constant(zero->CastTo(DType::kFloat32)));
  const Val weight = c.AsFloatWeight(1, Dequantized(*q.constant(), *scale, zero, *layout));  // invalidates pointers
  return weight ? FakeQuantize(weight / divisor, offset, grid) : weight;
}

absl::StatusOr<Val> Points(ImportContext& c, size_t tensor) {
  const auto grid = FindGrid(c.in(tensor).dtype());
  if (!grid) return Invalid("input ", tensor, " of type ", ToString(c.in(tensor).type()), " is not quantized");
  const Val weight = tensor == 1 ? ProductWeight(c, *grid) : Val();
  return weight ? weight : GetFloatValues(c.in(tensor), DType::kFloat32);
}

// Returns the numbers of input `tensor` minus its zero point.
absl::StatusOr<Val> Centered(ImportContext& c, size_t tensor, size_t zero, int64_t axis) {
  ASSIGN_OR_RETURN(const Val x, Points(c, tensor));
  if (!c.has(zero)) return x;
  const Val z = Cast(FixedInput(c, zero), DType::kFloat32);
  if (z.rank() == x.rank() && x.rank() > 1) return x - z;  // per row or column, already with extents of 1
  ASSIGN_OR_RETURN(const ScaleLayout layout, ScaleLayout::Create(x.shape(), z.shape(), axis, 0));
  return x - layout.Along(z);
}

ImportOr ComputeSums(Val y) { return One(Quantized(y, *FindGrid(DType::kInt32))); }

ImportOr ImportConvInteger(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val x, Centered(c, 0, 2, 1));
  ASSIGN_OR_RETURN(const Val w, Centered(c, 1, 3, 0));
  ASSIGN_OR_RETURN(const Val y, First(ImportAs(c, "", "Conv", {x, w}, c.attrs())));
  return ComputeSums(y);
}

ImportOr ImportMatMulInteger(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val a, Centered(c, 0, 2, -2));
  const auto stored = ReadStoredMatrix(c, 1, kNone, 3, 1, 0);
  ASSIGN_OR_RETURN(const Val b, stored ? Dequantize(*stored, a.dtype()) : Centered(c, 1, 3, -1));
  ASSIGN_OR_RETURN(const Val y, Product(c, a, b));
  return ComputeSums(y);
}

ImportOr WithBias(ImportContext& c, Val y, size_t bias) { return One(c.has(bias) ? y + c.in(bias) : y); }

// Imports MatMulIntegerToFloat of A, B, their scales, their zero points and a bias.
ImportOr ImportMatMulIntegerToFloat(ImportContext& c) {
  ASSIGN_OR_RETURN(const QuantizedInput a, ReadQuantized(c, 0, 2, 4, -2));
  ASSIGN_OR_RETURN(const Val y, ScaledProduct(c, a.Centered(), a.scale, 1, 3, 5));
  return WithBias(c, y, 6);
}

// Imports DynamicQuantizeMatMul of A (float), B, scale and zero point of B, and a bias.
ImportOr ImportDynamicQuantizeMatMul(ImportContext& c) {
  const DynamicRange a = QuantizedDynamically(c.in(0));
  ASSIGN_OR_RETURN(const Val y, ScaledProduct(c, a.points - a.zero, a.scale, 1, 2, 3));
  return WithBias(c, y, 4);
}

// Imports QGemm of A and B, each followed by scale and zero point, C, and scale and zero point of Y. Without them, Y is
// float.
ImportOr ImportQGemm(ImportContext& c) {
  ASSIGN_OR_RETURN(const QuantizedInput a, ReadQuantized(c, 0, 1, 2));
  const int64_t axis = c.attrs().Int("transB") != 0 ? 0 : 1;
  const auto stored = ReadStoredMatrix(c, 3, 4, 5, axis, 0);
  QuantizedInput b;
  if (stored) {
    b.scale = FixedInput(c, 4);
  } else {
    ASSIGN_OR_RETURN(b, ReadQuantized(c, 3, 4, 5, axis));
  }
  const Val matrix = stored ? Dequantize(*stored, a.points.dtype()) : b.Centered();
  const Val columns = b.scale.rank() == 0 ? b.scale : Reshape(b.scale, {b.scale.type().elements()});
  const Attrs attrs = {{"transA", c.attrs().Int("transA")}, {"transB", c.attrs().Int("transB")}};
  ASSIGN_OR_RETURN(Val y, First(ImportAs(c, "", "Gemm", {a.Centered(), matrix}, attrs)));
  y = y * c.attrs().Float("alpha", 1.0);
  ASSIGN_OR_RETURN(Val bias, ReadQuantizedBias(c, 6, 1, 4));
  bias = Cast(bias, a.scale.dtype());
  if (bias) y = y + (stored ? bias * columns : bias);
  y = stored ? y * a.scale : y * a.scale * columns;
  if (!c.has(7)) return One(y);
  ASSIGN_OR_RETURN(const Val q, Quantize(c, y, 7, 8));
  return One(q);
}

// Imports QLinearNAME of two operands. Each operand is followed by scale and zero point; scale and zero point of the
// result are last.
ImportOr ImportQLinearBinary(ImportContext& c) {
  ASSIGN_OR_RETURN(const QuantizedInput a, ReadQuantized(c, 0, 1, 2));
  ASSIGN_OR_RETURN(const QuantizedInput b, ReadQuantized(c, 3, 4, 5));
  ASSIGN_OR_RETURN(const Val q, Quantize(c, Binary(c.node().op_type.substr(7), a.Real(), b.Real()), 6, 7));
  return One(q);
}

// Imports QLinearNAME of one operand with the attributes of NAME.
ImportOr ImportQLinearUnary(ImportContext& c) {
  if (c.attrs().Int("channels_last") != 0) return absl::UnimplementedError("channels_last is not supported");
  ASSIGN_OR_RETURN(const QuantizedInput x, ReadQuantized(c, 0, 1, 2));
  Attrs attrs = c.attrs();
  attrs.Erase("channels_last");
  attrs.Erase("opset");
  ASSIGN_OR_RETURN(const Val y, First(ImportAs(c, "", c.node().op_type.substr(7), {x.Real()}, attrs)));
  ASSIGN_OR_RETURN(const Val q, Quantize(c, y, 3, 4));
  return One(q);
}

// Imports QLinearConcat of scale and zero point of the result, then each part followed by its scale and zero point.
ImportOr ImportQLinearConcat(ImportContext& c) {
  if (c.num_inputs() % 3 != 2) return Invalid("has ", c.num_inputs(), " inputs, expected 2 and 3 for each part");
  std::vector<Val> parts;
  for (size_t i = 2; i < c.num_inputs(); i += 3) {
    if (!c.has(i)) return Invalid("input ", i, " is missing");
    ASSIGN_OR_RETURN(const QuantizedInput x, ReadQuantized(c, i, i + 1, i + 2));
    parts.push_back(x.Real());
  }
  ASSIGN_OR_RETURN(const Val y, First(ImportAs(c, "", "Concat", parts, c.attrs())));
  ASSIGN_OR_RETURN(const Val q, Quantize(c, y, 0, 1));
  return One(q);
}

constexpr std::string_view kMs = "com.microsoft";

// Scales of the weight [D,I,4·H] of an LSTM: one per direction, or one per direction and column.
struct LstmScales {
  int64_t axis = 0, block = 0;

  LstmScales(const Shape& weight, const Shape& scale) {
    if (scale.size() == 2 && NumElements(scale) > 1 && weight.size() == 3) axis = 1, block = weight[1];
  }
};

absl::StatusOr<Val> ReadLstmWeight(ImportContext& c, size_t tensor, size_t scale, size_t zero) {
  if (!c.has(tensor) || !c.has(scale) || c.in(tensor).rank() != 3)
    return Invalid("inputs ", tensor, " and ", scale, " are no weight of 3 axes and its scales");
  const LstmScales scales(c.in(tensor).shape(), c.in(scale).shape());
  ASSIGN_OR_RETURN(const QuantizedInput w, ReadQuantized(c, tensor, scale, zero, scales.axis, scales.block));
  return Transpose(w.Real(), {0, 2, 1});
}

// Imports DynamicQuantizeLSTM of the inputs of LSTM, then scale and zero point of W and of R. Unlike ONNX Runtime, does
// not round X and the states to 8 bits.
ImportOr ImportDynamicQuantizeLstm(ImportContext& c) {
  std::vector<Val> inputs;
  for (size_t i = 0; i < 8; ++i) inputs.push_back(c.has(i) ? c.in(i) : Val());
  ASSIGN_OR_RETURN(inputs[1], ReadLstmWeight(c, 1, 8, 9));
  ASSIGN_OR_RETURN(inputs[2], ReadLstmWeight(c, 2, 10, 11));
  return ImportAs(c, "", "LSTM", std::move(inputs), c.attrs());
}

constexpr QuantizedWeight kWeights[] = {
    {.op_type = "DequantizeLinear", .tensor = 0, .scale = 1, .zero = 2, .in_place = true},
    {.domain = kMs, .op_type = "DequantizeLinear", .tensor = 0, .scale = 1, .zero = 2, .in_place = true},
    {"", "QLinearConv", 3, 4, 5},
    {"", "QLinearConv", 8, 1, kNone, 4},
    {.op_type = "QLinearMatMul", .tensor = 3, .scale = 4, .zero = 5, .in_place = true},
    {.domain = kMs, .op_type = "QGemm", .tensor = 3, .scale = 4, .zero = 5, .in_place = true},
    {kMs, "QGemm", 6, 1, kNone, 4},
    {.domain = kMs, .op_type = "MatMulIntegerToFloat", .tensor = 1, .scale = 3, .zero = 5, .in_place = true},
    {.domain = kMs, .op_type = "DynamicQuantizeMatMul", .tensor = 1, .scale = 2, .zero = 3, .in_place = true},
    {kMs, "DynamicQuantizeLSTM", 1, 8, 9},
    {kMs, "DynamicQuantizeLSTM", 2, 10, 11},
    {kMs, "QLinearAdd", 3, 4, 5},
    {kMs, "QLinearMul", 3, 4, 5},
    {kMs, "QLinearAdd", 0, 1, 2},
    {kMs, "QLinearMul", 0, 1, 2},
    {.op_type = "ConvInteger", .tensor = 1, .scale = 4, .zero = 3, .scale_behind = true},
    {.op_type = "MatMulInteger", .tensor = 1, .scale = 4, .zero = 3, .scale_behind = true, .in_place = true},
    {.domain = kMs, .op_type = "MatMulNBits", .tensor = 1, .scale = 2, .zero = 3, .packed = true},
    {.domain = kMs, .op_type = "GatherBlockQuantized", .tensor = 0, .scale = 2, .zero = 3, .packed = true},
    {.domain = kMs, .op_type = "QMoE", .tensor = 2, .scale = 3, .zero = 11, .packed = true},
    {.domain = kMs, .op_type = "QMoE", .tensor = 5, .scale = 6, .zero = 12, .packed = true},
    {.domain = kMs, .op_type = "QMoE", .tensor = 8, .scale = 9, .zero = 13, .packed = true},
};

}  // namespace

const QuantizedWeight* FindQuantizedWeight(std::string_view domain, std::string_view op_type, size_t input) {
  for (const QuantizedWeight& w : kWeights) {
    if (w.domain == domain && w.op_type == op_type && w.tensor == input) return &w;
  }
  return nullptr;
}

const QuantizedWeight* FindPackedWeight(std::string_view domain, std::string_view op_type) {
  for (const QuantizedWeight& w : kWeights) {
    if (w.packed && w.domain == domain && w.op_type == op_type) return &w;
  }
  return nullptr;
}

bool ScalesBias(const QuantizedWeight& weight) {
  return std::ranges::any_of(kWeights, [&](const QuantizedWeight& other) {
    return other.domain == weight.domain && other.op_type == weight.op_type && other.factor == weight.scale;
  });
}

int64_t ScaleAxis(const QuantizedWeight& weight, const Attrs& attrs) {
  if (weight.op_type == "QGemm") return attrs.Int("transB") != 0 ? 0 : 1;
  return attrs.Int("axis", 1);
}

absl::StatusOr<ScaleLayout> WeightScaleLayout(const QuantizedWeight& weight, const Attrs& attrs, const Shape& tensor,
                                              const Shape& scale) {
  if (weight.op_type == "DynamicQuantizeLSTM") {
    const LstmScales scales(tensor, scale);
    return ScaleLayout::Create(tensor, scale, scales.axis, scales.block);
  }
  if (weight.op_type != "DequantizeLinear") {
    const bool rows = weight.op_type == "QLinearConv" || (weight.op_type == "QGemm" && attrs.Int("transB") != 0);
    return ScaleLayout::Create(tensor, scale, rows ? 0 : -1, 0);
  }
  const bool single = NumElements(scale) == 1 || tensor.size() == 1;
  return ScaleLayout::Create(tensor, scale, single ? 0 : attrs.Int("axis", 1), attrs.Int("block_size"));
}

std::span<const OnnxOp> QuantizedOpImports() {
  static constexpr OnnxOp ops[] = {
      {"", "QLinearConv", 8, 9, ImportQLinearConv},
      {"", "QLinearMatMul", 8, 8, ImportQLinearMatMul},
      {"", "ConvInteger", 2, 5, ImportConvInteger},
      {"", "MatMulInteger", 2, 5, ImportMatMulInteger},
      {kMs, "MatMulIntegerToFloat", 4, 7, ImportMatMulIntegerToFloat},
      {kMs, "DynamicQuantizeMatMul", 3, 5, ImportDynamicQuantizeMatMul},
      {kMs, "DynamicQuantizeLSTM", 3, 12, ImportDynamicQuantizeLstm, {.time_major = true, .weight_inputs = 0b10001110}},
      {kMs, "QGemm", 2, 9, ImportQGemm},
      {kMs, "QLinearAdd", 2, 8, ImportQLinearBinary},
      {kMs, "QLinearMul", 2, 8, ImportQLinearBinary},
      {kMs, "QLinearSigmoid", 2, 5, ImportQLinearUnary},
      {kMs, "QLinearLeakyRelu", 2, 5, ImportQLinearUnary},
      {kMs, "QLinearGlobalAveragePool", 2, 5, ImportQLinearUnary},
      {kMs, "QLinearAveragePool", 2, 5, ImportQLinearUnary},
      {kMs, "QLinearSoftmax", 5, 5, ImportQLinearUnary},
      {kMs, "QLinearConcat", 1, Arity::kMany, ImportQLinearConcat},
  };
  return ops;
}

}  // namespace onnxtrain
