// Elementary functions of the vector kernels against double precision, over a dense sweep of all floats.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "frontend/ops/builder.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

struct Function {
  const char* op;
  double (*exact)(double);
  float low, high;  // what is swept
  double most;      // units in the last place
};

double UnitOf(double value) {
  int exponent = 0;
  std::frexp(std::max(std::abs(value), 1.17549435e-38), &exponent);
  return std::ldexp(1.0, exponent - 24);
}

std::vector<float> Sweep(const Function& f) {
  std::vector<float> xs;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4093) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (x >= f.low && x <= f.high) xs.push_back(x);
  }
  return xs;
}

void Check(const Function& f) {
  SCOPED_TRACE(f.op);
  const std::vector<float> xs = Sweep(f);
  const Type type = {DType::kFloat32, {static_cast<int64_t>(xs.size())}};
  Graph graph;
  Builder b(&graph);
  graph.AddOutput("y", b.Op(f.op, {b.Input(InputKind::kFeed, "x", type)}).id());
  ASSERT_TRUE(b.status().ok()) << b.status();
  HostTensor x(type);
  std::copy(xs.begin(), xs.end(), x.mutable_data<float>().begin());
  const HostTensor y = RunOnce(Cpu(), graph, {{"x", x}})[0];
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double exact = f.exact(xs[i]), error = std::abs(y.data<float>()[i] - exact) / UnitOf(exact);
    if (!(error <= worst)) worst = error, at = xs[i];
  }
  EXPECT_LE(worst, f.most) << "at " << at;
}

TEST(CpuMath, IsWithinUnitsInTheLastPlace) {
  const auto d = [](double (*f)(double)) { return f; };
  ForEachTarget([&] {
    Check({"Exp", d(std::exp), -103, 88.7f, 2});
    Check({"Log", d(std::log), 1e-44f, 3e38f, 2});
    Check({"Tanh", d(std::tanh), -12, 12, 2});
    Check({"Erf", d(std::erf), -5, 5, 2});
    Check({"Expm1", d(std::expm1), -80, 88.7f, 2});
    Check({"Log1p", d(std::log1p), -0.9999f, 3e38f, 2});
    Check({"Sin", d(std::sin), -3e38f, 3e38f, 4});
    Check({"Cos", d(std::cos), -3e38f, 3e38f, 4});
    Check({"Tan", d(std::tan), -3e38f, 3e38f, 4});
    Check({"Asin", d(std::asin), -1, 1, 4});
    Check({"Acos", d(std::acos), -1, 1, 4});
    Check({"Atan", d(std::atan), -3e38f, 3e38f, 4});
    Check({"Sinh", d(std::sinh), -89.4f, 89.4f, 4});
    Check({"Cosh", d(std::cosh), -89.4f, 89.4f, 4});
    Check({"Asinh", d(std::asinh), -3e38f, 3e38f, 4});
    Check({"Acosh", d(std::acosh), 1, 3e38f, 4});
    Check({"Atanh", d(std::atanh), -0.9999999f, 0.9999999f, 4});
    Check({"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 2.5});
    Check({"Softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, -80, 80, 2.5});
    const auto gelu = [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); };
    Check({"Gelu", gelu, -0.5f, 30, 4});
    Check({"Gelu", gelu, -4, -0.5f, 256});  // what is left of 1 there is small
  });
}

// Zeros with their signs, the ends of the domains and beyond, infinities, NaN.
TEST(CpuMath, FollowsTheStandardAtSpecialValues) {
  struct Special {
    const char* op;
    float (*library)(float);
  };
  const auto f = [](float (*function)(float)) { return function; };
  const Special functions[] = {{"Sin", f(std::sin)},    {"Cos", f(std::cos)},     {"Tan", f(std::tan)},
                               {"Asin", f(std::asin)},  {"Acos", f(std::acos)},   {"Atan", f(std::atan)},
                               {"Sinh", f(std::sinh)},  {"Cosh", f(std::cosh)},   {"Exp", f(std::exp)},
                               {"Log", f(std::log)},    {"Asinh", f(std::asinh)}, {"Acosh", f(std::acosh)},
                               {"Atanh", f(std::atanh)}};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<double> values = {
      -kInfinity, -1e30, -50, -2, -1,   -0.0,      0.0,
      1e-40,      1,     2,   50, 1e30, kInfinity, std::numeric_limits<double>::quiet_NaN()};
  const Type type = {DType::kFloat32, {static_cast<int64_t>(values.size())}};
  ForEachTarget([&] {
    for (const Special& s : functions) {
      Graph graph;
      Builder b(&graph);
      graph.AddOutput("y", b.Op(s.op, {b.Input(InputKind::kFeed, "x", type)}).id());
      const HostTensor x = HostTensor::FromDoubles(type, values), y = RunOnce(Cpu(), graph, {{"x", x}})[0];
      for (size_t i = 0; i < values.size(); ++i) {
        const float got = y.data<float>()[i], want = s.library(x.data<float>()[i]);
        const bool same = (std::isnan(got) && std::isnan(want)) ||
                          (std::signbit(got) == std::signbit(want) &&
                           (got == want || (std::isfinite(want) && std::abs(got - want) <= 1e-6f * std::abs(want))));
        EXPECT_TRUE(same) << s.op << "(" << values[i] << ") = " << got << ", not " << want;
      }
    }
  });
}

}  // namespace
}  // namespace onnxtrain
