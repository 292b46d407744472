#include <cmath>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/legacy.h"
#include "frontend/ops/import/straight_through.h"
#include "frontend/ops/quantize.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

ImportOr ImportBinary(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val b, SecondOperand(c));
  if (const Val estimate = ImportStraightThrough(c.node().op_type, c.in(0), b)) return One(estimate);
  return One(Binary(c.node().op_type, c.in(0), b));
}

// The result has the base's type, whatever the exponent's. An integer to a fractional power is computed in float64.
ImportOr ImportPow(ImportContext& c) {
  const Val a = c.in(0);
  ASSIGN_OR_RETURN(const Val b, SecondOperand(c));
  if (!IsFloat(a.dtype()) && IsFloat(b.dtype())) {
    return One(Cast(Binary("Pow", Cast(a, DType::kFloat64), Cast(b, DType::kFloat64)), a.dtype()));
  }
  return One(Binary("Pow", a, Cast(b, a.dtype())));
}

ImportOr ImportMod(ImportContext& c) {
  return One(c.b().Op("Mod", {c.in(0), c.in(1)}, {{"fmod", c.attrs().Int("fmod")}}));
}

Val FoldOperands(ImportContext& c, std::string_view op) {
  Val y = c.in(0);
  for (size_t i = 1; i < c.num_inputs(); ++i) y = Binary(op, y, c.in(i));
  return y;
}
ImportOr ImportSum(ImportContext& c) { return One(FoldOperands(c, "Add")); }
ImportOr ImportMean(ImportContext& c) {
  const Val sum = FoldOperands(c, "Add");
  return One(c.num_inputs() == 1 ? sum : sum / static_cast<double>(c.num_inputs()));
}
ImportOr ImportExtremum(ImportContext& c) { return One(FoldOperands(c, c.node().op_type)); }

// Bounds are attributes before opset 11, then optional scalar inputs.
ImportOr ImportClip(ImportContext& c) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Val x = c.in(0);
  double min = c.attrs().Float("min", -kInfinity), max = c.attrs().Float("max", kInfinity);
  // Open bounds were written as the largest float; x beyond them does not occur.
  if (min <= std::numeric_limits<float>::lowest()) min = -kInfinity;
  if (max >= std::numeric_limits<float>::max()) max = kInfinity;
  const bool known = (!c.has(1) || c.Known(1) != nullptr) && (!c.has(2) || c.Known(2) != nullptr);
  if (!known || !IsFloat(x.dtype())) {
    if (c.has(1)) x = Binary("Max", x, c.in(1));
    return One(c.has(2) ? Binary("Min", x, c.in(2)) : x);
  }
  if (c.has(1)) {
    ASSIGN_OR_RETURN(min, KnownDouble(c, 1, "min"));
  }
  if (c.has(2)) {
    ASSIGN_OR_RETURN(max, KnownDouble(c, 2, "max"));
  }
  return One(c.b().Op("Clip", {x}, {{"min", min}, {"max", max}}));
}

struct TypeName {
  std::string_view onnx;
  DType dtype;
};
// How opset 1 to 5 wrote the target of a Cast.
constexpr TypeName kTypeNames[] = {
    {"FLOAT", DType::kFloat32}, {"DOUBLE", DType::kFloat64}, {"FLOAT16", DType::kFloat16}, {"INT8", DType::kInt8},
    {"INT16", DType::kInt16},   {"INT32", DType::kInt32},    {"INT64", DType::kInt64},     {"UINT8", DType::kUInt8},
    {"UINT16", DType::kUInt16}, {"UINT32", DType::kUInt32},  {"UINT64", DType::kUInt64},   {"BOOL", DType::kBool},
};

// Integers on a grid give a float with the gradient of what was quantized: sums of products that are scaled behind.
Val CastIntegers(Val x, DType to) { return IsFloat(to) && !IsFloat(x.dtype()) ? GetFloatValues(x, to) : Cast(x, to); }

// `saturate` concerns the 8-bit floats alone, and `round_mode` one of them.
ImportOr CastTo(ImportContext& c, DType to) {
  const bool saturate = c.attrs().Int("saturate", 1) != 0, powers = to == DType::kFloat8E8M0;
  const std::string mode = powers ? c.attrs().String("round_mode", "up") : "even";
  const bool usual = saturate && mode == (powers ? "up" : "even");
  if (usual || !IsSmallFloat(to) || c.in(0).dtype() == to) return One(CastIntegers(c.in(0), to));
  const Val x = IsFloat(c.in(0).dtype()) ? c.in(0) : Cast(c.in(0), DType::kFloat32);
  return One(c.b().Op("EncodeFloat", {x},
                      {{"to", std::string(ToString(to))}, {"saturate", int64_t{saturate}}, {"round_mode", mode}}));
}

ImportOr ImportCast(ImportContext& c) {
  if (const auto* name = c.attrs().Find<std::string>("to")) {
    for (const TypeName& t : kTypeNames) {
      if (t.onnx == *name) return One(Cast(c.in(0), t.dtype));
    }
    return Invalid("unknown element type '", *name, "'");
  }
  ASSIGN_OR_RETURN(const DType to, ElementType(c.attrs().Int("to")));
  return CastTo(c, to);
}
ImportOr ImportCastLike(ImportContext& c) { return CastTo(c, c.in(1).dtype()); }
ImportOr ImportIdentity(ImportContext& c) { return One(c.in(0)); }

// Up to opset 6 the slope is one number or one per channel (axis 1), later it broadcasts.
ImportOr ImportPRelu(ImportContext& c) {
  const Val x = c.in(0);
  Val slope = c.in(1);
  if (slope.rank() == 1 && slope.dim(0) != 1 && x.rank() >= 2 && c.since(7, false, true)) {
    Shape shape(x.rank() - 1, 1);
    shape[0] = slope.dim(0);
    slope = Reshape(slope, std::move(shape));
  }
  if (BroadcastShapes(slope.shape(), x.shape()) != x.shape()) {
    return Invalid("a slope of type ", ToString(slope.type()), " does not broadcast to ", ToString(x.type()));
  }
  return One(Binary("PRelu", x, slope));
}

ImportOr ImportGelu(ImportContext& c) {
  return One(c.b().Op("Gelu", {c.in(0)}, {{"approximate", c.attrs().String("approximate", "none")}}));
}

// x·σ(αx).
ImportOr ImportSwish(ImportContext& c) {
  const double alpha = c.attrs().Float("alpha", 1.0);
  const Val x = c.in(0);
  return One(x * Sigmoid(alpha == 1 ? x : x * alpha));
}

// Rows list the operators that are imported as they are (OpRow::onnx).
constexpr int kMany = Arity::kMany;
constexpr OnnxOp kOps[] = {
    {"", "Add", 2, 2, ImportBinary, {.scores = true, .scalar_weight = true, .weight_inputs = 0b11}},
    {"", "Sub", 2, 2, ImportBinary, {.scalar_weight = true, .takes_numbers = true}},
    {"", "Mul", 2, 2, ImportBinary, {.scores = true, .scalar_weight = true, .weight_inputs = 0b11}},
    {"", "Div", 2, 2, ImportBinary, {.scores = true, .scalar_weight = true, .takes_numbers = true}},
    {"", "Equal", 2, 2, ImportBinary, {.takes_numbers = true}},
    {"", "Less", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b01}},
    {"", "LessOrEqual", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b01}},
    {"", "Greater", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b10}},
    {"", "GreaterOrEqual", 2, 2, ImportBinary, {.takes_numbers = true, .reversed_inputs = 0b10}},
    {"", "And", 2, 2, ImportBinary},
    {"", "Or", 2, 2, ImportBinary},
    {"", "Xor", 2, 2, ImportBinary},
    {"", "Not", 1, 1, ImportSame, {.reversed_inputs = 1, .keeps_choice = true}},
    {"", "Pow", 2, 2, ImportPow, {.takes_numbers = true}},
    {"", "Mod", 2, 2, ImportMod, {.takes_numbers = true}},
    {"", "Where", 3, 3, ImportSame, {.scores = true, .takes_numbers = true}},
    {"", "PRelu", 2, 2, ImportPRelu, {.weight_inputs = 0b10}},
    {"", "Sum", 1, kMany, ImportSum},
    {"", "Mean", 1, kMany, ImportMean},
    {"", "Max", 1, kMany, ImportExtremum, {.takes_numbers = true}},
    {"", "Min", 1, kMany, ImportExtremum, {.takes_numbers = true}},
    {"", "Clip", 1, 3, ImportClip, {.keeps_channels = true, .takes_numbers = true}},
    {"", "Cast", 1, 1, ImportCast, {.keeps_classes = true, .takes_numbers = true, .type_attr = "to"}},
    {"", "CastLike", 2, 2, ImportCastLike},
    {"", "Identity", 1, 1, ImportIdentity, {.view = true, .scalar_weight = true}},
    {"", "Gelu", 1, 1, ImportGelu, {.keeps_channels = true}},
    {"", "Swish", 1, 1, ImportSwish},
    {"com.microsoft", "Gelu", 1, 1, ImportGelu},
};

}  // namespace

std::span<const OnnxOp> ElementwiseImports() {
  static const std::vector<OnnxOp> ops = [] {
    std::vector<OnnxOp> all(std::begin(kOps), std::end(kOps));
    all.insert(all.end(), LegacyImports().begin(), LegacyImports().end());
    return all;
  }();
  return ops;
}

}  // namespace onnxtrain
