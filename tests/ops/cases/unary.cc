#include <limits>

#include "frontend/base/strings.h"
#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Where kinks and rounding boundaries are.
Input Special() { return Values({12}, {-kInf, -3.5, -2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 3.5, kInf}); }

struct Range {
  std::string_view op;
  double low, high;
};

// Smooth on the whole range.
constexpr Range kSmooth[] = {
    {"Neg", -3, 3},     {"Exp", -3, 3},      {"Log", 0.1, 4},        {"Log1p", -0.8, 4},   {"Expm1", -2, 2},
    {"Sqrt", 0.1, 4},   {"Rsqrt", 0.1, 4},   {"Reciprocal", 0.2, 4}, {"Sin", -6, 6},       {"Cos", -6, 6},
    {"Tan", -1.2, 1.2}, {"Asin", -0.9, 0.9}, {"Acos", -0.9, 0.9},    {"Atan", -4, 4},      {"Sinh", -3, 3},
    {"Cosh", -3, 3},    {"Asinh", -4, 4},    {"Acosh", 1.2, 4},      {"Atanh", -0.9, 0.9}, {"Tanh", -3, 3},
    {"Sigmoid", -8, 8}, {"Softplus", -8, 8}, {"Mish", -8, 8},        {"Erf", -3, 3},       {"Softsign", -4, 4},
};

constexpr std::string_view kKinked[] = {"Abs",         "Relu",      "HardSwish", "Sign", "Floor", "Ceil",
                                        "Round",       "LeakyRelu", "Elu",       "Celu", "Selu",  "ThresholdedRelu",
                                        "HardSigmoid", "Shrink"};

// An activation with other than its default attributes.
Case With(const std::string& name, const std::string& op, Attrs attrs) {
  return {name, op, {WellSeparated({4, 25})}, std::move(attrs)};
}

std::vector<Case> CastCases() {
  std::vector<Case> cases;
  for (std::string to : {"f32", "i8", "i16", "i32", "i64", "u8", "bool"}) {
    // Truncates towards zero. Nothing out of range: that is no value at all in C++.
    Input x = Values({8}, {0, 0.5, 0.99, 1.5, 2.5, 100.75, 127, 3});
    cases.push_back({StrCat("Cast_f32_", to), "Cast", {to == "f32" ? x : Fixed(x)}, {{"to", to}}});
    cases.push_back({StrCat("Cast_i64_", to), "Cast", {Ints({9}, 0, 100)}, {{"to", to}}});
    cases.push_back({StrCat("Cast_bool_", to), "Cast", {Bools({9})}, {{"to", to}}});
  }
  for (DType small :
       {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ, DType::kFloat8E8M0,
        DType::kFloat4E2M1, DType::kInt4, DType::kUInt4, DType::kInt2, DType::kUInt2}) {
    const std::string name(ToString(small));
    const bool signs = small != DType::kFloat8E8M0 && small != DType::kUInt4 && small != DType::kUInt2;
    const double s = signs ? -1 : 1, far = IsSmallFloat(small) ? 1e6 : 25, nan = IsSmallFloat(small) ? kNaN : 0;
    const double inf = IsSmallFloat(small) ? kInf : 1;
    const Input x = Fixed(Values(
        {16}, {0, 0.26, s * 0.75, 1.0625, s * 1.75, 3.5, s * 5, 7.1, 13, far, s * far, 1e-3, nan, inf, s * inf, 1}));
    cases.push_back({StrCat("Cast_f32_", name), "Cast", {x}, {{"to", name}}});
    cases.push_back(
        {StrCat("Cast_i16_", name), "Cast", {Ints({40}, signs ? -300 : 1, 300, DType::kInt16)}, {{"to", name}}});
    for (std::string to : {"f32", "i32", "u8", "u4", "f8e5m2"}) {
      if (to == name) continue;
      cases.push_back({StrCat("Cast_", name, "_", to),
                       "Cast",
                       {IntValues({5}, {0, 1, 2, signs && !(IsSmallFloat(small) && to == "u8") ? -1 : 1, 3}, small)},
                       {{"to", to}}});
    }
    if (!IsSmallFloat(small)) continue;
    for (std::string mode : {"even", "up", "down", "nearest"}) {
      for (int64_t saturate : {0, 1}) {
        cases.push_back({StrCat("EncodeFloat_", name, "_", mode, saturate),
                         "EncodeFloat",
                         {x},
                         {{"to", name}, {"round_mode", mode}, {"saturate", saturate}}});
      }
    }
  }
  for (DType wide : {DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    const std::string name(ToString(wide));
    cases.push_back(
        {StrCat("Cast_f32_", name), "Cast", {Fixed(Values({5}, {0, 1.5, 40000, 65535, 3}))}, {{"to", name}}});
    cases.push_back(
        {StrCat("Cast_", name, "_f32"), "Cast", {Ints({20}, 0, 65535, wide)}, {{"to", std::string("f32")}}});
    cases.push_back({StrCat("Cast_", name, "_i8"), "Cast", {Ints({20}, 0, 65535, wide)}, {{"to", std::string("i8")}}});
  }
  cases.push_back(
      {"Cast_i8_i64_negative", "Cast", {Ints({20}, -128, 127, DType::kInt8)}, {{"to", std::string("i64")}}});
  cases.push_back({"Cast_nan_bool", "Cast", {Fixed(Values({3}, {kNaN, 0, kInf}))}, {{"to", std::string("bool")}}});
  return cases;
}

}  // namespace

std::vector<Case> UnaryCases() {
  std::vector<Case> cases;
  for (const Range& r : kSmooth) {
    const std::string op(r.op);
    cases.push_back({op, op, {Uniform({3, 37}, r.low, r.high)}, {}});
    cases.push_back({op + "_scalar", op, {Uniform({}, r.low, r.high)}, {}});
    cases.push_back({op + "_special", op, {Fixed(Special())}, {}});
  }
  for (std::string_view name : kKinked) {
    const std::string op(name);
    cases.push_back({op, op, {WellSeparated({4, 25})}, {}});
    cases.push_back({op + "_special", op, {Fixed(Special())}, {}});
  }
  // A NaN that became a number would hide that a model has diverged.
  for (std::string op : {"Relu", "LeakyRelu", "Elu", "Celu", "Selu", "ThresholdedRelu", "HardSigmoid", "HardSwish",
                         "Clip", "Abs", "Sign", "Floor", "Round", "Sigmoid", "Tanh", "Softplus", "Erf"}) {
    cases.push_back({op + "_nan", op, {Fixed(Values({19}, std::vector<double>(19, kNaN)))}, {}});
  }
  cases.push_back({"Clip_nan_both", "Clip", {Fixed(Values({3}, {kNaN, -9, 9}))}, {{"min", 0.0}, {"max", 6.0}}});
  for (std::string op : {"Neg", "Abs", "Sign"}) {
    cases.push_back({op + "_i64", op, {Ints({17}, -9, 9)}, {}});
    cases.push_back({op + "_i32", op, {Ints({17}, -9, 9, DType::kInt32)}, {}});
  }
  for (DType dtype : {DType::kInt8, DType::kInt16, DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64}) {
    const std::string type(onnxtrain::ToString(dtype));
    // As an unsigned number, a negative one is large.
    const int64_t sign = dtype == DType::kUInt64 ? 1 : -1;
    const Input x = IntValues({5}, {9 * sign, sign, 0, 3, 7}, dtype);
    for (std::string op : {"Neg", "Abs", "Sign", "Relu"}) cases.push_back({StrCat(op, "_", type), op, {x}, {}});
    for (std::string to : {"f32", "f64", "i64", "u8", "u16", "u32", "u64", "bool"}) {
      cases.push_back({StrCat("Cast_", type, "_as_", to), "Cast", {x}, {{"to", to}}});
    }
    cases.push_back({"Cast_f32_as_" + type, "Cast", {Fixed(Values({4}, {0, 1.5, 3, 100.75}))}, {{"to", type}}});
  }
  const Input large = IntValues({4}, {-1, 0, 5, std::numeric_limits<int64_t>::min()}, DType::kUInt64);
  for (std::string op : {"Abs", "Sign", "Relu"}) cases.push_back({op + "_u64_large", op, {large}, {}});
  cases.push_back({"Cast_u64_large", "Cast", {large}, {{"to", std::string("f64")}}});
  cases.push_back(With("LeakyRelu_steep", "LeakyRelu", {{"alpha", 0.3}}));
  cases.push_back(With("Elu_2", "Elu", {{"alpha", 2.0}}));
  cases.push_back(With("Celu_2", "Celu", {{"alpha", 2.0}}));
  cases.push_back(With("Selu_other", "Selu", {{"alpha", 1.5}, {"gamma", 2.0}}));
  cases.push_back(With("ThresholdedRelu_low", "ThresholdedRelu", {{"alpha", 0.25}}));
  cases.push_back(With("ThresholdedRelu_negative", "ThresholdedRelu", {{"alpha", -0.45}}));
  cases.push_back(With("HardSigmoid_sixth", "HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.55}}));
  cases.push_back(With("Shrink_biased", "Shrink", {{"lambd", 1.05}, {"bias", 0.3}}));
  cases.push_back(With("Clip_both", "Clip", {{"min", -1.05}, {"max", 2.05}}));
  cases.push_back(With("Clip_low", "Clip", {{"min", 0.05}}));
  cases.push_back(With("Clip_high", "Clip", {{"max", 0.05}}));
  cases.push_back(With("Clip_open", "Clip", {}));
  cases.push_back({"Clip_nothing", "Clip", {Fixed(Special())}, {{"min", 1.0}, {"max", -1.0}}});
  for (std::string approximate : {"none", "tanh"}) {
    cases.push_back({StrCat("Gelu_", approximate), "Gelu", {Uniform({5, 23}, -6, 6)}, {{"approximate", approximate}}});
    cases.push_back({StrCat("GeluGrad_", approximate),
                     "GeluGrad",
                     {Normal({5, 23}), Uniform({5, 23}, -6, 6)},
                     {{"approximate", approximate}}});
  }
  const Input odd = Fixed(Values({5}, {kNaN, -kInf, kInf, 0, 1}));
  cases.push_back({"IsNaN", "IsNaN", {odd}, {}});
  cases.push_back({"IsInf", "IsInf", {odd}, {}});
  cases.push_back({"IsInf_negative", "IsInf", {odd}, {{"detect_positive", int64_t{0}}}});
  cases.push_back({"IsInf_positive", "IsInf", {odd}, {{"detect_negative", int64_t{0}}}});
  cases.push_back({"IsInf_none", "IsInf", {odd}, {{"detect_negative", int64_t{0}}, {"detect_positive", int64_t{0}}}});
  cases.push_back({"Not", "Not", {Bools({3, 5})}, {}});
  for (Case& c : CastCases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace onnxtrain::cases
