// The exceptions: which cases or operators a mode passes over, and why. What is listed here must exist: coverage_test
// sees to it.
#pragma once

#include <string_view>

namespace onnxtrain::cases {

enum class Mode { kCpuForward, kCpuGradient, kFinite, kDecomposition, kHost, kAutograd, kCase };

struct Exception {
  Mode mode;
  std::string_view name;  // of a case; for kCase, of an operator
  std::string_view reason;
};

inline constexpr std::string_view kNegative =
    "unsigned 64-bit numbers above 2^63 are negative in the host's evaluation (host_eval.h)";

inline constexpr Exception kExceptions[] = {
    {Mode::kDecomposition, "StraightThrough", "decomposed, it is its value, whose gradient it replaces"},
    {Mode::kFinite, "StraightThrough", "its gradient is by definition not that of its value"},
    {Mode::kDecomposition, "CrossEntropy_hostile",
     "labels outside the classes: only that they are harmless is promised"},
    {Mode::kDecomposition, "CrossEntropyGrad_hostile",
     "labels outside the classes: only that they are harmless is promised"},
    {Mode::kFinite, "CrossEntropyGrad_hostile", "its gradient is that of the decomposition, which need not agree here"},
    {Mode::kAutograd, "CrossEntropyGrad_hostile",
     "its gradient is that of the decomposition, which need not agree here"},
    {Mode::kHost, "CrossEntropy_hostile", "labels outside the classes: only that they are harmless is promised"},
    {Mode::kHost, "CrossEntropyGrad_hostile", "labels outside the classes: only that they are harmless is promised"},
    {Mode::kHost, "Abs_u64_large", kNegative},
    {Mode::kHost, "Relu_u64_large", kNegative},
    {Mode::kHost, "Sign_u64_large", kNegative},
    {Mode::kHost, "Div_u64_large", kNegative},
    {Mode::kHost, "Mod_u64_large", kNegative},
    {Mode::kHost, "Min_u64_large", kNegative},
    {Mode::kHost, "Max_u64_large", kNegative},
    {Mode::kHost, "Less_u64_large", kNegative},
    {Mode::kHost, "LessOrEqual_u64_large", kNegative},
    {Mode::kHost, "Greater_u64_large", kNegative},
    {Mode::kHost, "GreaterOrEqual_u64_large", kNegative},
    {Mode::kHost, "ReduceMax_u64_large", kNegative},
    {Mode::kHost, "ReduceMin_u64_large", kNegative},
    {Mode::kHost, "ArgMax_u64_large", kNegative},
    {Mode::kHost, "ArgMin_u64_large", kNegative},
    {Mode::kHost, "Cast_u64_large", kNegative},
};

inline const Exception* ExceptionFor(Mode mode, std::string_view name) {
  for (const Exception& e : kExceptions) {
    if (e.mode == mode && e.name == name) return &e;
  }
  return nullptr;
}

}  // namespace onnxtrain::cases
