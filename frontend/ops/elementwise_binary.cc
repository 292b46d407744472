// Arithmetic, comparison, logic and bitwise operators with broadcasting, and Where.
#include <algorithm>
#include <cmath>
#include <functional>

#include "frontend/base/status.h"
#include "frontend/ops/elementwise.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

OpRow Arithmetic(std::string_view name, Evaluate evaluate, Gradient gradient) {
  return {.name = name,
          .inputs = {2, 2},
          .infer = BroadcastNumeric,
          .grad_status = GradStatus::kFormula,
          .gradient = gradient,
          .evaluate = evaluate,
          .emit = EmitSame};
}

// Returns a row of + − · /, which may be parts of a normalization. Weights at their inputs are biases or scales.
OpRow Basic(std::string_view name, Evaluate evaluate, Gradient gradient, WeightRole role) {
  OpRow row = Arithmetic(name, evaluate, gradient);
  row.arithmetic = true;
  row.init.roles = {role, role};
  return row;
}

OpRow Commutative(OpRow row) {
  row.commutative = true;
  return row;
}

OpRow KeepsSign(OpRow row) {
  row.non_negative = NonNegative::kIfInputsAre;
  return row;
}

// Normalizations use the operator to keep a variance from being negative.
OpRow ProtectsVariance(OpRow row) {
  row.arithmetic = true;
  return row;
}

OpRow GuardsDivisor(OpRow row) {
  row.guards_divisor = true;
  return row;
}

OpRow Predicate(std::string_view name, TypeRule infer, Evaluate evaluate) {
  return {.name = name,
          .inputs = {2, 2},
          .infer = infer,
          .grad_status = GradStatus::kZero,
          .evaluate = evaluate,
          .emit = EmitSame};
}

// The gradients of a/b are dy/b and −dy·y/b.
Val DivByNumerator(Val dy, Val a, Val b, Val y) { return dy / b; }
Val DivByDenominator(Val dy, Val a, Val b, Val y) { return -(dy / b * y); }

// The derivative of aᵇ by a is b·aᵇ⁻¹, and 0 where b = 0, even if a = 0.
Val PowByBase(Val dy, Val a, Val b, Val y) {
  const HostTensor* known = b.constant();
  if (known != nullptr && known->size() == 1) {
    const double e = known->At(0);
    if (e == 2) return dy * (a * 2);
    if (e != 0) return dy * (Binary("Pow", a, Number(a, e - 1)) * e);
  }
  return Where(Equal(b, 0), Number(a, 0), dy * (b * Binary("Pow", a, b - 1)));
}
// The derivative of aᵇ by b is aᵇ·ln a, and 0 where a = 0 and b ≥ 0.
Val PowByExponent(Val dy, Val a, Val b, Val y) {
  const Val flat = Binary("And", Equal(a, 0), Binary("GreaterOrEqual", b, Number(b, 0)));
  return Where(flat, Number(a, 0), dy * (y * Log(a)));
}

// Passes the gradient to the winning operand, and half of it to each at a tie. `wins` is Greater for Max, Less for Min.
Val Winner(std::string_view wins, Val dy, Val mine, Val other) {
  return Where(Equal(mine, other), dy * 0.5, Masked(Binary(wins, mine, other), dy));
}
template <bool kMax>
Val ExtremumByA(Val dy, Val a, Val b, Val y) {
  return Winner(kMax ? "Greater" : "Less", dy, a, b);
}
template <bool kMax>
Val ExtremumByB(Val dy, Val a, Val b, Val y) {
  return Winner(kMax ? "Greater" : "Less", dy, b, a);
}

double ScalarMax(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double ScalarMin(double a, double b) { return std::isnan(a) || a < b ? a : b; }

// Mod is a − q·b with q = trunc(a/b) (fmod) or floor(a/b), so the derivative by b is −q.
std::vector<Val> ModGrad(const GradContext& c) {
  const Val a = c.x(0), b = c.x(1), ratio = a / b;
  const Val q =
      c.node.attrs.Int("fmod") ? Unary("Sign", ratio) * Unary("Floor", Unary("Abs", ratio)) : Unary("Floor", ratio);
  return {c.need(0) ? SumTo(c.dy(), a.shape()) : Val(), c.need(1) ? SumTo(-(c.dy() * q), b.shape()) : Val()};
}
std::vector<HostTensor> EvalMod(const EvalContext& c) {
  if (c.attrs.Int("fmod"))
    return MapPairs(
        c, [](double a, double b) { return std::fmod(a, b); }, SafeMod);
  return MapPairs(
      c, [](double a, double b) { return a - b * std::floor(a / b); }, FloorMod);
}

double ScalarPRelu(double x, double slope) { return x > 0 ? x : x * slope; }
Val PReluByX(Val dy, Val x, Val slope, Val y) { return Where(Greater(x, 0), dy, dy * slope); }
Val PReluBySlope(Val dy, Val x, Val slope, Val y) { return Where(Greater(x, 0), Number(x, 0), dy * x); }

TypesOr WhereTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireDType(c, 0, DType::kBool));
  RETURN_IF_ERROR(RequireSameDType(c, 1, 2));
  ASSIGN_OR_RETURN(Shape values, BroadcastOrError(c.in(1).shape, c.in(2).shape));
  ASSIGN_OR_RETURN(Shape shape, BroadcastOrError(c.in(0).shape, values));
  return std::vector<Type>{{c.in(1).dtype, std::move(shape)}};
}
std::vector<Val> WhereGrad(const GradContext& c) {
  const Val zero = Number(c.dy(), 0);
  return {Val(), c.need(1) ? SumTo(Where(c.x(0), c.dy(), zero), c.x(1).shape()) : Val(),
          c.need(2) ? SumTo(Where(c.x(0), zero, c.dy()), c.x(2).shape()) : Val()};
}
std::vector<HostTensor> EvalWhere(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  std::array<Shape, 3> strides;
  for (size_t k = 0; k < 3; ++k) strides[k] = BroadcastStrides(c.inputs[k]->shape(), y.shape());
  Walk<3>(y.shape(), strides, {0, 0, 0}, [&](int64_t i, const std::array<int64_t, 3>& at) {
    const size_t chosen = c.inputs[0]->IntAt(at[0]) ? 1 : 2;
    CopyElement(*c.inputs[chosen], at[chosen], &y, i);
  });
  return {std::move(y)};
}

// Evaluates a comparison of floats or integers.
template <typename Op>
constexpr Evaluate kCompare = EvalBinary<[](double a, double b) { return static_cast<double>(Op()(a, b)); },
                                         [](int64_t a, int64_t b) { return static_cast<int64_t>(Op()(a, b)); }>;

}  // namespace

std::vector<OpRow> BinaryRows() {
  OpRow pow = Arithmetic("Pow", EvalBinary<[](double a, double b) { return std::pow(a, b); }, WrapPow>,
                         BroadcastGrad<PowByBase, PowByExponent>);
  pow.precision = Precision::kFloat32;
  pow.arithmetic = true;
  pow.simplify = SimplifyPow;
  OpRow mod = Arithmetic("Mod", EvalMod, ModGrad);
  mod.attrs = {{"fmod", int64_t{0}}};
  OpRow prelu =
      Arithmetic("PRelu", EvalBinary<ScalarPRelu, [](int64_t x, int64_t s) { return x < 1 ? WrapMul(x, s) : x; }>,
                 BroadcastGrad<PReluByX, PReluBySlope>);
  prelu.emit = EmitPRelu;
  prelu.init = {.roles = {WeightRole::kData, WeightRole::kSlope}, .gain = ReluGain};
  OpRow add = GuardsDivisor(KeepsSign(Commutative(Basic(
      "Add", EvalBinary<[](double a, double b) { return a + b; }, WrapAdd>,
      BroadcastGrad<[](Val dy, Val a, Val b, Val y) { return dy; }, [](Val dy, Val a, Val b, Val y) { return dy; }>,
      WeightRole::kBias))));
  add.init.transparent = true;
  add.simplify = SimplifyAdd;
  return {
      std::move(add),
      Simplified(Basic("Sub", EvalBinary<[](double a, double b) { return a - b; }, WrapSub>,
                       BroadcastGrad<[](Val dy, Val a, Val b, Val y) { return dy; },
                                     [](Val dy, Val a, Val b, Val y) { return -dy; }>,
                       WeightRole::kBias),
                 SimplifySub),
      Simplified(KeepsSign(Commutative(Basic("Mul", EvalBinary<[](double a, double b) { return a * b; }, WrapMul>,
                                             BroadcastGrad<[](Val dy, Val a, Val b, Val y) { return dy * b; },
                                                           [](Val dy, Val a, Val b, Val y) { return dy * a; }>,
                                             WeightRole::kScale))),
                 SimplifyMul),
      Simplified(KeepsSign(Basic("Div", EvalBinary<[](double a, double b) { return a / b; }, SafeDiv>,
                                 BroadcastGrad<DivByNumerator, DivByDenominator>, WeightRole::kScale)),
                 SimplifyDiv),
      std::move(pow),
      ProtectsVariance(
          GuardsDivisor(Arithmetic("Max", EvalBinary<ScalarMax, [](int64_t a, int64_t b) { return std::max(a, b); }>,
                                   BroadcastGrad<ExtremumByA<true>, ExtremumByB<true>>))),
      Arithmetic("Min", EvalBinary<ScalarMin, [](int64_t a, int64_t b) { return std::min(a, b); }>,
                 BroadcastGrad<ExtremumByA<false>, ExtremumByB<false>>),
      std::move(mod),
      std::move(prelu),
      Predicate("Equal", BroadcastCompare, kCompare<std::equal_to<>>),
      Predicate("Less", BroadcastCompare, kCompare<std::less<>>),
      Predicate("LessOrEqual", BroadcastCompare, kCompare<std::less_equal<>>),
      Predicate("Greater", BroadcastCompare, kCompare<std::greater<>>),
      Predicate("GreaterOrEqual", BroadcastCompare, kCompare<std::greater_equal<>>),
      Simplified(Predicate("And", BroadcastBool, kCompare<std::logical_and<>>), SimplifyAnd),
      Simplified(Predicate("Or", BroadcastBool, kCompare<std::logical_or<>>), SimplifyOr),
      Simplified(Predicate("Xor", BroadcastBool, kCompare<std::not_equal_to<>>), SimplifyXor),
      {.name = "Where",
       .inputs = {3, 3},
       .infer = WhereTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = WhereGrad,
       .evaluate = EvalWhere,
       .guards_divisor = true,
       .init = {.roles = {WeightRole::kData, WeightRole::kTable, WeightRole::kTable}},
       .emit = EmitSame,
       .simplify = SimplifyWhere},
  };
}

namespace {

absl::Status RequireInteger(const TypeContext& c) {
  return IsInteger(c.in(0).dtype) ? absl::OkStatus()
                                  : Invalid("input 0 should be of an integer type, got ", ToString(c.in(0)));
}

TypesOr BitwiseTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireInteger(c));
  return BroadcastNumeric(c);
}

TypesOr NotTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireInteger(c));
  return SameAsInput(c);
}

// Requires an unsigned type, since shifts fill with zeros.
TypesOr ShiftTypes(const TypeContext& c) {
  const DType dtype = c.in(0).dtype;
  const bool is_unsigned =
      dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
  if (!is_unsigned) return Invalid("input 0 should be of an unsigned integer type, got ", ToString(c.in(0)));
  return BroadcastNumeric(c);
}

int64_t ShiftLeft(int64_t a, int64_t b) {
  return static_cast<uint64_t>(b) > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t ShiftRight(int64_t a, int64_t b) {
  return static_cast<uint64_t>(b) > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
}
double NoFloats(double, double) { return 0; }

template <auto F>
constexpr Evaluate kOnInts = EvalBinary<NoFloats, F>;

OpRow BitRow(std::string_view name, TypeRule infer, Evaluate evaluate, ImportFn onnx = ImportSame) {
  return {.name = name,
          .inputs = {2, 2},
          .infer = infer,
          .grad_status = GradStatus::kZero,
          .evaluate = evaluate,
          .onnx = onnx};
}

}  // namespace

std::span<const OpRow> BitwiseOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>{
        BitRow("BitwiseAnd", BitwiseTypes, kOnInts<[](int64_t a, int64_t b) { return a & b; }>),
        BitRow("BitwiseOr", BitwiseTypes, kOnInts<[](int64_t a, int64_t b) { return a | b; }>),
        BitRow("BitwiseXor", BitwiseTypes, kOnInts<[](int64_t a, int64_t b) { return a ^ b; }>),
        BitRow("ShiftLeft", ShiftTypes, kOnInts<ShiftLeft>, nullptr),
        BitRow("ShiftRight", ShiftTypes, kOnInts<ShiftRight>, nullptr),
        {.name = "BitwiseNot",
         .infer = NotTypes,
         .grad_status = GradStatus::kZero,
         .evaluate = EvalNumeric<[](double x) { return x; }, [](int64_t x) { return ~x; }>,
         .onnx = ImportSame},
    };
    for (OpRow& row : *all) row.elementwise = true;
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain
