// Functions y = f(x) without attributes, each with f, f′ and its precision class.
#include <cmath>
#include <numbers>

#include "frontend/base/status.h"
#include "frontend/graph/small_types.h"
#include "frontend/graph/type.h"
#include "frontend/ops/elementwise.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

constexpr Precision kPropagate = Precision::kPropagate, kFloat32 = Precision::kFloat32;

OpRow Smooth(std::string_view name, Evaluate evaluate, Gradient gradient, Precision precision = kPropagate) {
  return {.name = name,
          .infer = SameAsFloatInput,
          .grad_status = GradStatus::kFormula,
          .gradient = gradient,
          .evaluate = evaluate,
          .precision = precision,
          .onnx = ImportSame};
}

OpRow NotInOnnx(OpRow row, EmitFn emit) {
  row.onnx = nullptr;
  row.emit = emit;
  return row;
}

OpRow Arithmetic(OpRow row) {
  row.arithmetic = true;
  return row;
}

OpRow Activation(OpRow row, double (*gain)(const Attrs&), std::vector<WrittenForm> written_as = {}) {
  row.init.gain = gain;
  row.written_as = std::move(written_as);
  return row;
}

OpRow Selects(OpRow row) {
  row.selects = true;
  return row;
}

OpRow NotNegative(OpRow row, NonNegative when = NonNegative::kAlways) {
  row.non_negative = when;
  return row;
}

OpRow Probabilities(OpRow row) {
  row.probabilities = true;
  return row;
}

// Returns the row of a function that also accepts integers.
OpRow Numeric(std::string_view name, Evaluate evaluate, Gradient gradient) {
  OpRow row = Smooth(name, evaluate, gradient);
  row.infer = SameAsNumericInput;
  return row;
}

OpRow Step(std::string_view name, TypeRule infer, Evaluate evaluate) {
  return {.name = name, .infer = infer, .grad_status = GradStatus::kZero, .evaluate = evaluate, .onnx = ImportSame};
}

double ScalarSoftplus(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
double ScalarSigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double ScalarSign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }

int64_t IntSign(int64_t x) { return (x > 0) - (x < 0); }

std::vector<HostTensor> EvalCast(const EvalContext& c) { return {c.inputs[0]->CastTo(c.output_types[0].dtype)}; }

// ReLU′(0) = 0.
std::vector<Val> ReluGrad(const GradContext& c) { return {Masked(Greater(c.y(), 0), c.dy())}; }

// The derivative of x·clip(x/6 + 1/2, 0, 1) is x/3 + 1/2 where the function is quadratic.
std::vector<Val> HardSwishGrad(const GradContext& c) {
  const Val x = c.x(0), dy = c.dy();
  return {Where(Less(x, -3), Number(x, 0), Where(Greater(x, 3), dy, dy * (x / 3 + 0.5)))};
}

// Returns t + x·(1 − t²)·σ(x) with t = tanh(softplus x).
Val MishDerivative(Val x, Val y) {
  const Val t = Tanh(Unary("Softplus", x));
  return t + x * (1 - t * t) * Sigmoid(x);
}

TypesOr CastTypes(const TypeContext& c) {
  const auto to = ParseDType(c.attrs.String("to"));
  if (!to.has_value()) return Invalid("unknown element type '", c.attrs.String("to"), "'");
  return std::vector<Type>{{*to, c.in(0).shape}};
}

TypesOr EncodeTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  const auto to = ParseDType(c.attrs.String("to"));
  if (!to.has_value() || !IsSmallFloat(*to)) return Invalid("'", c.attrs.String("to"), "' is no small float type");
  if (!ParseSmallRounding(c.attrs.String("round_mode")))
    return Invalid("unknown round_mode '", c.attrs.String("round_mode"), "'");
  return std::vector<Type>{{*to, c.in(0).shape}};
}

std::vector<HostTensor> EvalEncode(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const SmallFloatEncoding& encoding = GetEncoding(c.attrs);
  for (int64_t i = 0, n = y.size(); i < n; ++i) y.mutable_data<uint8_t>()[i] = encoding.Encode(c.inputs[0]->At(i));
  return {std::move(y)};
}

std::vector<Val> CastGrad(const GradContext& c) {
  return {IsFloat(c.x(0).dtype()) ? Cast(c.dy(), c.x(0).dtype()) : Val()};
}

auto InfinityTest(const Attrs& attrs) {
  return [negative = attrs.Int("detect_negative"), positive = attrs.Int("detect_positive")](double x) {
    return static_cast<double>(std::isinf(x) && (x > 0 ? positive : negative));
  };
}

// Returns the rows of arithmetic functions, powers and logarithms.
std::vector<OpRow> Powers() {
  return {
      Simplified(
          Arithmetic(Numeric("Neg", EvalNumeric<[](double x) { return -x; }, [](int64_t x) { return WrapSub(0, x); }>,
                             [](const GradContext& c) { return std::vector<Val>{-c.dy()}; })),
          SimplifyNeg),
      NotNegative(Numeric(
          "Abs",
          EvalNumeric<[](double x) { return std::fabs(x); }, [](int64_t x) { return x < 0 ? WrapSub(0, x) : x; }>,
          Chain<[](Val x, Val y) { return Unary("Sign", x); }>)),
      NotNegative(Selects(Activation(
          Numeric("Relu",
                  EvalNumeric<[](double x) { return x < 0 ? 0 : x; }, [](int64_t x) { return x < 0 ? int64_t{0} : x; }>,
                  ReluGrad),
          ReluGain))),
      NotNegative(Arithmetic(Smooth("Exp", EvalUnary<[](double x) { return std::exp(x); }>,
                                    Chain<[](Val x, Val y) { return y; }>, kFloat32))),
      Arithmetic(Smooth(
          "Log", EvalUnary<[](double x) { return std::log(x); }>,
          [](const GradContext& c) { return std::vector<Val>{c.dy() / c.x(0)}; }, kFloat32)),
      NotInOnnx(Smooth(
                    "Log1p", EvalUnary<[](double x) { return std::log1p(x); }>,
                    [](const GradContext& c) { return std::vector<Val>{c.dy() / (c.x(0) + 1)}; }, kFloat32),
                EmitLog1p),
      NotInOnnx(Smooth("Expm1", EvalUnary<[](double x) { return std::expm1(x); }>,
                       Chain<[](Val x, Val y) { return y + 1; }>, kFloat32),
                EmitExpm1),
      Simplified(NotNegative(Arithmetic(Smooth(
                     "Sqrt", EvalUnary<[](double x) { return std::sqrt(x); }>,
                     [](const GradContext& c) { return std::vector<Val>{c.dy() / (c.y() * 2)}; }, kFloat32))),
                 SimplifySqrt),
      NotInOnnx(Arithmetic(Smooth("Rsqrt", EvalUnary<[](double x) { return 1 / std::sqrt(x); }>,
                                  Chain<[](Val x, Val y) { return y * y * y * -0.5; }>, kFloat32)),
                EmitRsqrt),
      Simplified(NotNegative(Arithmetic(Smooth("Reciprocal", EvalUnary<[](double x) { return 1 / x; }>,
                                               Chain<[](Val x, Val y) { return -(y * y); }>, kFloat32)),
                             NonNegative::kIfInputsAre),
                 SimplifyReciprocal),
  };
}

// Returns the rows of trigonometric and hyperbolic functions and their inverses.
std::vector<OpRow> Angles() {
  return {
      Smooth("Sin", EvalUnary<[](double x) { return std::sin(x); }>,
             Chain<[](Val x, Val y) { return Unary("Cos", x); }>, kFloat32),
      Smooth("Cos", EvalUnary<[](double x) { return std::cos(x); }>,
             Chain<[](Val x, Val y) { return -Unary("Sin", x); }>, kFloat32),
      Smooth("Tan", EvalUnary<[](double x) { return std::tan(x); }>, Chain<[](Val x, Val y) { return y * y + 1; }>,
             kFloat32),
      Smooth("Asin", EvalUnary<[](double x) { return std::asin(x); }>,
             Chain<[](Val x, Val y) { return Rsqrt(1 - x * x); }>, kFloat32),
      Smooth("Acos", EvalUnary<[](double x) { return std::acos(x); }>,
             Chain<[](Val x, Val y) { return -Rsqrt(1 - x * x); }>, kFloat32),
      Smooth(
          "Atan", EvalUnary<[](double x) { return std::atan(x); }>,
          [](const GradContext& c) { return std::vector<Val>{c.dy() / (c.x(0) * c.x(0) + 1)}; }, kFloat32),
      Smooth("Sinh", EvalUnary<[](double x) { return std::sinh(x); }>,
             Chain<[](Val x, Val y) { return Unary("Cosh", x); }>, kFloat32),
      Smooth("Cosh", EvalUnary<[](double x) { return std::cosh(x); }>,
             Chain<[](Val x, Val y) { return Unary("Sinh", x); }>, kFloat32),
      Smooth("Asinh", EvalUnary<[](double x) { return std::asinh(x); }>,
             Chain<[](Val x, Val y) { return Rsqrt(x * x + 1); }>, kFloat32),
      Smooth("Acosh", EvalUnary<[](double x) { return std::acosh(x); }>,
             Chain<[](Val x, Val y) { return Rsqrt((x - 1) * (x + 1)); }>, kFloat32),
      Smooth(
          "Atanh", EvalUnary<[](double x) { return std::atanh(x); }>,
          [](const GradContext& c) { return std::vector<Val>{c.dy() / (1 - c.x(0) * c.x(0))}; }, kFloat32),
  };
}

// Returns the rows of activations and of Erf.
std::vector<OpRow> Sigmoids() {
  constexpr double kErfSlope = 2 * std::numbers::inv_sqrtpi;  // erf′(x) = 2/√π · exp(−x²)
  return {
      Activation(Smooth("Tanh", EvalUnary<[](double x) { return std::tanh(x); }>,
                        Chain<[](Val x, Val y) { return 1 - y * y; }>),
                 XavierGain),
      NotNegative(Probabilities(
          Activation(Smooth("Sigmoid", EvalUnary<ScalarSigmoid>, Chain<[](Val x, Val y) { return y * (1 - y); }>),
                     XavierGain, {{"Exp"}}))),
      NotNegative(Activation(
          Smooth("Softplus", EvalUnary<ScalarSoftplus>, Chain<[](Val x, Val y) { return Sigmoid(x); }>, kFloat32),
          ReluGain, {{"Log"}, {"Log1p"}})),
      Activation(Smooth("Softsign", EvalUnary<[](double x) { return x / (1 + std::fabs(x)); }>,
                        [](const GradContext& c) {
                          const Val d = Unary("Abs", c.x(0)) + 1;
                          return std::vector<Val>{c.dy() / (d * d)};
                        }),
                 XavierGain, {{"Abs"}}),
      Activation(Smooth("HardSwish", EvalUnary<[](double x) { return x * std::fmin(std::fmax(x / 6 + 0.5, 0), 1); }>,
                        HardSwishGrad),
                 ReluGain, {{"Clip"}, {"HardSigmoid"}}),
      Activation(
          Smooth("Mish", EvalUnary<[](double x) { return x * std::tanh(ScalarSoftplus(x)); }>, Chain<MishDerivative>),
          ReluGain, {{"Tanh"}}),
      Smooth("Erf", EvalUnary<[](double x) { return std::erf(x); }>,
             Chain<[](Val x, Val y) { return Exp(-(x * x)) * kErfSlope; }>, kFloat32),
  };
}

// Returns the rows of step functions and predicates, whose gradients are zero.
std::vector<OpRow> Steps() {
  return {
      Step("Sign", SameAsNumericInput, EvalNumeric<ScalarSign, IntSign>),
      Step("Floor", SameAsFloatInput, EvalUnary<[](double x) { return std::floor(x); }>),
      Step("Ceil", SameAsFloatInput, EvalUnary<[](double x) { return std::ceil(x); }>),
      Step("Round", SameAsFloatInput, EvalUnary<[](double x) { return std::nearbyint(x); }>),
      Step("IsNaN", PredicateOfFloat, EvalUnary<[](double x) { return static_cast<double>(std::isnan(x)); }>),
      {.name = "IsInf",
       .attrs = {{"detect_negative", int64_t{1}}, {"detect_positive", int64_t{1}}},
       .infer = PredicateOfFloat,
       .grad_status = GradStatus::kZero,
       .evaluate = EvalWithAttrs<InfinityTest>,
       .onnx = ImportSame},
  };
}

// Returns the rows of operators that change the element type.
std::vector<OpRow> Conversions() {
  return {
      {.name = "Cast",
       .attrs = {{"to", std::string(), true}},
       .infer = CastTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = CastGrad,
       .evaluate = EvalCast,
       .derive = true,
       .moves_data = true,
       .emit = EmitCast,
       .simplify = SimplifyCast},
      {.name = "EncodeFloat",
       .attrs = {{"to", std::string(), true}, {"saturate", int64_t{1}}, {"round_mode", std::string("even")}},
       .infer = EncodeTypes,
       .grad_status = GradStatus::kZero,
       .evaluate = EvalEncode},
      {.name = "Not",
       .infer = [](const TypeContext& c) -> TypesOr {
         RETURN_IF_ERROR(RequireDType(c, 0, DType::kBool));
         return SameAsInput(c);
       },
       .grad_status = GradStatus::kZero,
       .evaluate = EvalNumeric<[](double x) { return x; }, [](int64_t x) { return int64_t{x == 0}; }>,
       .emit = EmitSame,
       .simplify = SimplifyNot},
  };
}

}  // namespace

std::vector<OpRow> UnaryRows() {
  std::vector<OpRow> rows;
  for (const auto part : {Powers, Angles, Sigmoids, Steps, Conversions}) {
    for (OpRow& row : part()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace onnxtrain
