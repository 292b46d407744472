#include "backends/torch/kernels/element_functions.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "absl/strings/str_format.h"
#include "frontend/base/strings.h"

namespace onnxtrain::aten {
namespace {

// Each expression computes the same as ATen's kernel, including NaNs. The prelude defines `Exp` and the like.
constexpr ElementFunction kFunctions[] = {
    {"Neg", "-a"},
    {"Abs", "Abs(a)"},
    {"Sign", "a != a ? a : real(a > 0) - real(a < 0)", "", true},
    {"Exp", "Exp(a)"},
    {"Log", "Log(a)"},
    {"Log1p", "Log1p(a)"},
    {"Expm1", "Expm1(a)"},
    {"Sqrt", "Sqrt(a)"},
    {"Rsqrt", "1 / Sqrt(a)"},
    {"Reciprocal", "1 / a"},
    {"Sin", "Sin(a)"},
    {"Cos", "Cos(a)"},
    {"Tan", "Tan(a)"},
    {"Asin", "Asin(a)"},
    {"Acos", "Acos(a)"},
    {"Atan", "Atan(a)"},
    {"Sinh", "Sinh(a)"},
    {"Cosh", "Cosh(a)"},
    {"Asinh", "Asinh(a)"},
    {"Acosh", "Acosh(a)"},
    {"Atanh", "Atanh(a)"},
    {"Tanh", "Tanh(a)"},
    {"Sigmoid", "1 / (1 + Exp(-a))"},
    {"Relu", "a < 0 ? real(0) : a"},
    {"Softplus", "a > 40 ? a : Log1p(Exp(a))"},
    {"Softsign", "a / (1 + Abs(a))", "", true},
    {"HardSwish", "a * Clamp(a + 3, real(0), real(6)) / 6"},
    {"Mish", "a * Tanh(a > 40 ? a : Log1p(Exp(a)))"},
    {"Erf", "Erf(a)"},
    {"Floor", "Floor(a)"},
    {"Ceil", "Ceil(a)"},
    {"Round", "RoundToEven(a)"},
    {"Not", "!a"},
    {"LeakyRelu", "a > 0 ? a : a * p", "alpha"},
    {"Elu", "a > 0 || a != a ? a : Expm1(a) * p", "alpha"},
    {"Celu", "a > 0 || a != a ? a : Expm1(a / p) * p", "alpha"},
    {"Selu", "a > 0 || a != a ? a * q : Expm1(a) * p * q", "alpha gamma"},
    {"ThresholdedRelu", "a <= p ? real(0) : a", "alpha"},
    {"HardSigmoid", "Clamp(a * p + q, real(0), real(1))", "alpha beta", true},
    {"Shrink", "a < -p ? a + q : a > p ? a - q : a != a ? a : real(0)", "lambd bias", true},
    {"Clip", "Clamp(a, p, q)", "min max"},
    {"Gelu", "Gelu(a)"},
    {"Gelu/tanh", "GeluTanh(a)"},
    {"GeluGrad", "a * GeluSlope(b)"},
    {"GeluGrad/tanh", "a * GeluTanhSlope(b)"},
    {"IsNaN", "a != a"},
    {"IsInf", "(p != 0 && a == -Infinity()) || (q != 0 && a == Infinity())", "detect_negative detect_positive"},
    {"Add", "a + b"},
    {"Sub", "a - b"},
    {"Mul", "a * b"},
    {"Div", "a / b"},
    {"Pow", "Pow(a, b)"},
    {"Min", "Min(a, b)"},
    {"Max", "Max(a, b)"},
    {"Mod", "FloorMod(a, b)"},
    {"Mod/fmod", "TruncMod(a, b)"},
    {"PRelu", "a < 0 ? a * b : a", "", true},
    {"Equal", "a == b"},
    {"Less", "a < b"},
    {"LessOrEqual", "a <= b"},
    {"Greater", "a > b"},
    {"GreaterOrEqual", "a >= b"},
    {"And", "a && b"},
    {"Or", "a || b"},
    {"Xor", "a != b"},
    {"Where", "a ? b : c"},
    {"BinaryCrossEntropyWithLogits", "(a < 0 ? real(0) : a) - a * b + Log1p(Exp(-Abs(a)))", "", true},
};

constexpr ReductionFunction kReductions[] = {
    {"ReduceSum", "Sum"}, {"ReduceMean", "Sum", true}, {"ReduceMax", "Maximum"}, {"ReduceMin", "Minimum"}};

// Returns the name of the node's entry. Operators with variants have one entry for each.
std::string EntryName(const Node& node) {
  if (node.attrs.String("approximate") == "tanh") return StrCat(node.op, "/tanh");
  if (node.attrs.Int("fmod") != 0) return StrCat(node.op, "/fmod");
  return node.op;
}

double GetNumber(const Attrs& attrs, std::string_view name) {
  const int64_t* integer = attrs.Find<int64_t>(name);
  return integer != nullptr ? static_cast<double>(*integer) : attrs.Float(name);
}

}  // namespace

const ElementFunction* FindElementFunction(const Node& node) {
  const std::string name = EntryName(node);
  const auto* end = std::end(kFunctions);
  const auto* found = std::find_if(std::begin(kFunctions), end, [&](const auto& f) { return f.op == name; });
  return found == end ? nullptr : found;
}

const ReductionFunction* FindReductionFunction(const Node& node) {
  const auto* found = std::ranges::find(kReductions, node.op, &ReductionFunction::op);
  return found == std::end(kReductions) ? nullptr : found;
}

std::vector<std::string> ListElementOperators() {
  std::vector<std::string> names;
  for (const ElementFunction& function : kFunctions) names.emplace_back(function.op.substr(0, function.op.find('/')));
  return names;
}

std::string Literal(double value, bool wide) {
  if (std::isnan(value)) return "NotANumber()";
  if (std::isinf(value)) return value > 0 ? "Infinity()" : "(-Infinity())";
  const std::string digits = wide ? absl::StrFormat("%a", value) : absl::StrFormat("%af", static_cast<float>(value));
  if (digits == "inff" || digits == "-inff") return digits[0] == '-' ? "(-Infinity())" : "Infinity()";
  return digits[0] == '-' ? StrCat("(", digits, ")") : digits;
}

std::string DefineNumbers(const ElementFunction& function, const Node& node, bool wide) {
  std::istringstream names{std::string(function.numbers)};
  std::string text, name;
  for (char letter = 'p'; names >> name; ++letter) {
    StrAppend(&text, text.empty() ? "const real " : ", ", std::string(1, letter), " = ",
              Literal(GetNumber(node.attrs, name), wide));
  }
  return text.empty() ? text : text + "; ";
}

}  // namespace onnxtrain::aten
