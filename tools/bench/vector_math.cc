// Compares the elementary functions of backends/cpu with those of Highway (hwy/contrib/math) and of the C library: the
// largest error over a sweep of all floats of the domain, and the time per element. Prints a table in Markdown for each
// instruction set.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/bench/vector_math.h"

#define HWY_TARGET_INCLUDE "tools/bench/vector_math-inl.h"
#include "hwy/foreach_target.h"

#include "tools/bench/vector_math-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(CandidateTable);
namespace {

struct Domain {
  const char* name;
  double (*exact)(double);
  float low, high;
};

constexpr Domain kDomains[] = {
    {"Exp", std::exp, -103, 88.7f},     {"Expm1", std::expm1, -80, 88.7f},
    {"Log", std::log, 1e-44f, 3e38f},   {"Log1p", std::log1p, -0.9999f, 3e38f},
    {"Tanh", std::tanh, -12, 12},       {"Sin", std::sin, -39000, 39000},
    {"Cos", std::cos, -39000, 39000},   {"Tan", std::tan, -39000, 39000},
    {"Cosh", std::cosh, -89, 89},       {"Asin", std::asin, -1, 1},
    {"Acos", std::acos, -1, 1},         {"Atan", std::atan, -3e38f, 3e38f},
    {"Sinh", std::sinh, -88.7f, 88.7f}, {"Asinh", std::asinh, -3e38f, 3e38f},
    {"Acosh", std::acosh, 1, 3e38f},    {"Atanh", std::atanh, -1, 1},
};

double UnitOf(double value) {
  int exponent = 0;
  std::frexp(std::max(std::abs(value), 1.17549435e-38), &exponent);
  return std::ldexp(1.0, exponent - 24);
}

std::vector<float> SweepDomain(const Domain& d) {
  std::vector<float> xs;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4093) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (x >= d.low && x <= d.high && std::isfinite(d.exact(x))) xs.push_back(x);
  }
  return xs;
}

std::string DescribeError(RowFunction f, const Domain& d, const std::vector<float>& xs) {
  if (f == nullptr) return "–";
  std::vector<float> ys(xs.size());
  f(xs.data(), ys.data(), static_cast<int64_t>(xs.size()));
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double exact = d.exact(xs[i]), error = std::abs(ys[i] - exact) / UnitOf(exact);
    if (!(error <= worst)) worst = error, at = xs[i];
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f at %.4g", worst, static_cast<double>(at));
  return text;
}

// Nanoseconds per element: the shortest of several passes over numbers of ordinary size.
std::string DescribeTime(RowFunction f, const Domain& d) {
  if (f == nullptr) return "–";
  constexpr int kElements = 4096, kPasses = 200;
  const double low = std::max<double>(d.low, -8), high = std::min<double>(d.high, 8);
  std::vector<float> x(kElements), y(kElements);
  for (int i = 0; i < kElements; ++i) x[i] = static_cast<float>(low + (high - low) * ((i * 2654435761u) % 4096) / 4096);
  double best = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    f(x.data(), y.data(), kElements);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kElements);
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", best);
  return text;
}

void PrintTable() {
  const auto table = HWY_DYNAMIC_DISPATCH(CandidateTable)();
  std::printf("| function | error in ulp: ours | Highway | libm | ns per element: ours | Highway | libm |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const Domain& d : kDomains) {
    const std::vector<float> xs = SweepDomain(d);
    const auto row =
        std::find_if(table.begin(), table.end(), [&](const Candidates& c) { return std::string(c.name) == d.name; });
    std::printf("| %s | %s | %s | %s | %s | %s | %s |\n", d.name, DescribeError(row->ours, d, xs).c_str(),
                DescribeError(row->highway, d, xs).c_str(), DescribeError(row->library, d, xs).c_str(),
                DescribeTime(row->ours, d).c_str(), DescribeTime(row->highway, d).c_str(),
                DescribeTime(row->library, d).c_str());
  }
}

}  // namespace
}  // namespace onnxtrain::cpu

int main() {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::printf("\n%s\n\n", hwy::TargetName(target));
    onnxtrain::cpu::PrintTable();
  }
}
