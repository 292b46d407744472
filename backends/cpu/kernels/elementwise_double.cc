// Elementwise operators over float64: what checks gradients and runs models that hold doubles. Correct first: plain loops
// over the standard library's functions.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/spans.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kCost = 16;  // of an element, against an addition

double Sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x))); }
double Within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// y = f(x, p, q): p and q are the operator's numbers.
struct Function {
  std::string_view op;
  double (*f)(double x, double p, double q);
};

constexpr Function kFunctions[] = {
    {"Neg", [](double x, double, double) { return -x; }},
    {"Abs", [](double x, double, double) { return std::fabs(x); }},
    {"Sign", [](double x, double, double) { return x > 0 ? 1 : x < 0 ? -1 : x; }},
    {"Exp", [](double x, double, double) { return std::exp(x); }},
    {"Log", [](double x, double, double) { return std::log(x); }},
    {"Log1p", [](double x, double, double) { return std::log1p(x); }},
    {"Expm1", [](double x, double, double) { return std::expm1(x); }},
    {"Sqrt", [](double x, double, double) { return std::sqrt(x); }},
    {"Rsqrt", [](double x, double, double) { return 1 / std::sqrt(x); }},
    {"Reciprocal", [](double x, double, double) { return 1 / x; }},
    {"Sin", [](double x, double, double) { return std::sin(x); }},
    {"Cos", [](double x, double, double) { return std::cos(x); }},
    {"Tan", [](double x, double, double) { return std::tan(x); }},
    {"Asin", [](double x, double, double) { return std::asin(x); }},
    {"Acos", [](double x, double, double) { return std::acos(x); }},
    {"Atan", [](double x, double, double) { return std::atan(x); }},
    {"Sinh", [](double x, double, double) { return std::sinh(x); }},
    {"Cosh", [](double x, double, double) { return std::cosh(x); }},
    {"Asinh", [](double x, double, double) { return std::asinh(x); }},
    {"Acosh", [](double x, double, double) { return std::acosh(x); }},
    {"Atanh", [](double x, double, double) { return std::atanh(x); }},
    {"Tanh", [](double x, double, double) { return std::tanh(x); }},
    {"Sigmoid", [](double x, double, double) { return Sigmoid(x); }},
    {"Relu", [](double x, double, double) { return x < 0 ? 0 : x; }},
    {"Softplus", [](double x, double, double) { return Softplus(x); }},
    {"Softsign", [](double x, double, double) { return x / (1 + std::fabs(x)); }},
    {"HardSwish", [](double x, double, double) { return x * Within(x + 3, 0, 6) / 6; }},
    {"Mish", [](double x, double, double) { return x * std::tanh(Softplus(x)); }},
    {"Erf", [](double x, double, double) { return std::erf(x); }},
    {"Floor", [](double x, double, double) { return std::floor(x); }},
    {"Ceil", [](double x, double, double) { return std::ceil(x); }},
    {"Round", [](double x, double, double) { return std::nearbyint(x); }},
    {"LeakyRelu", [](double x, double p, double) { return x < 0 ? p * x : x; }},
    {"Elu", [](double x, double p, double) { return x < 0 ? p * std::expm1(x) : x; }},
    {"Celu", [](double x, double p, double) { return x < 0 ? p * std::expm1(x / p) : x; }},
    {"ThresholdedRelu", [](double x, double p, double) { return x > p ? x : 0; }},
    {"Selu", [](double x, double p, double q) { return q * (x < 0 ? p * std::expm1(x) : x); }},
    {"HardSigmoid", [](double x, double p, double q) { return Within(p * x + q, 0, 1); }},
    {"Shrink", [](double x, double p, double q) { return x < -p ? x + q : x > p ? x - q : 0; }},
    // Where the bounds cross, the upper one wins.
    {"Clip", [](double x, double p, double q) { return (x < p ? p : x) > q ? q : (x < p ? p : x); }},
};

constexpr Function kPredicates[] = {
    {"IsNaN", [](double x, double, double) { return static_cast<double>(x != x); }},
    {"IsInf", [](double x, double p, double q) { return static_cast<double>(std::isinf(x) && (x < 0 ? p : q) != 0); }},
};

template <typename Entry, size_t N>
const Entry& Named(const Entry (&table)[N], std::string_view op) {
  return *std::find_if(std::begin(table), std::end(table), [&](const Entry& e) { return e.op == op; });
}

template <typename Y, const auto& kTable>
absl::StatusOr<Kernel> PrepareUnary(const KernelContext& c) {
  const auto f = Named(kTable, c.node.op).f;
  const auto [p, q] = NumbersOf(c.node);
  const int64_t n = c.out().elements();
  return Kernel{.run = [f, p = p, q = q, n](const Args& args) {
    Parallel(n, kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) args.out<Y>()[i] = static_cast<Y>(f(args.in<double>()[i], p, q));
    });
  }};
}

template <typename Op, int kStepA, int kStepB>
void Binary(const void* a, const void* b, void* y, int64_t n) {
  const auto *left = static_cast<const double*>(a), *right = static_cast<const double*>(b);
  auto* out = static_cast<decltype(Op::F(0, 0))*>(y);
  for (int64_t i = 0; i < n; ++i) out[i] = Op::F(left[i * kStepA], right[i * kStepB]);
}

template <typename Op>
absl::StatusOr<Kernel> PrepareBinary(const KernelContext& c) {
  return BinaryKernel(c, {"", &Binary<Op, 1, 1>, &Binary<Op, 1, 0>, &Binary<Op, 0, 1>}, kCost);
}

struct AddOp { static double F(double a, double b) { return a + b; } };
struct SubOp { static double F(double a, double b) { return a - b; } };
struct MulOp { static double F(double a, double b) { return a * b; } };
struct DivOp { static double F(double a, double b) { return a / b; } };
struct PowOp { static double F(double a, double b) { return std::pow(a, b); } };
struct MinOp { static double F(double a, double b) { return a < b || a != a ? a : b; } };
struct MaxOp { static double F(double a, double b) { return a > b || a != a ? a : b; } };
struct FmodOp { static double F(double a, double b) { return std::fmod(a, b); } };
struct FloorModOp { static double F(double a, double b) { return a - std::floor(a / b) * b; } };
struct PReluOp { static double F(double a, double b) { return a < 0 ? a * b : a; } };
struct EqualOp { static bool F(double a, double b) { return a == b; } };
struct LessOp { static bool F(double a, double b) { return a < b; } };
struct LessOrEqualOp { static bool F(double a, double b) { return a <= b; } };
struct GreaterOp { static bool F(double a, double b) { return a > b; } };
struct GreaterOrEqualOp { static bool F(double a, double b) { return a >= b; } };

absl::StatusOr<Kernel> PrepareMod(const KernelContext& c) {
  return c.attrs().Int("fmod") != 0 ? PrepareBinary<FmodOp>(c) : PrepareBinary<FloorModOp>(c);
}

constexpr KernelRow kOthers[] = {
    {"Add", PrepareBinary<AddOp>, kDouble}, {"Sub", PrepareBinary<SubOp>, kDouble}, {"Mul", PrepareBinary<MulOp>, kDouble},
    {"Div", PrepareBinary<DivOp>, kDouble}, {"Pow", PrepareBinary<PowOp>, kDouble}, {"Min", PrepareBinary<MinOp>, kDouble},
    {"Max", PrepareBinary<MaxOp>, kDouble}, {"Mod", PrepareMod, kDouble}, {"PRelu", PrepareBinary<PReluOp>, kDouble},
};

// The results of comparisons are bool, but their inputs must not be.
bool OfDoubles(const KernelContext& c) { return c.in(0).dtype == DType::kFloat64; }

constexpr KernelRow kToBool[] = {
    {"Equal", PrepareBinary<EqualOp>, kDouble | kBools, OfDoubles},
    {"Less", PrepareBinary<LessOp>, kDouble | kBools, OfDoubles},
    {"LessOrEqual", PrepareBinary<LessOrEqualOp>, kDouble | kBools, OfDoubles},
    {"Greater", PrepareBinary<GreaterOp>, kDouble | kBools, OfDoubles},
    {"GreaterOrEqual", PrepareBinary<GreaterOrEqualOp>, kDouble | kBools, OfDoubles},
};

}  // namespace

std::span<const KernelRow> DoubleKernels() {
  static const auto* rows = [] {
    auto* all = new std::vector<KernelRow>;
    for (const Function& f : kFunctions) all->push_back({f.op, PrepareUnary<double, kFunctions>, kDouble});
    for (const Function& f : kPredicates) all->push_back({f.op, PrepareUnary<uint8_t, kPredicates>, kDouble | kBools, OfDoubles});
    all->insert(all->end(), std::begin(kOthers), std::end(kOthers));
    all->insert(all->end(), std::begin(kToBool), std::end(kToBool));
    return all;
  }();
  return *rows;
}

}  // namespace onnxtrain::cpu
