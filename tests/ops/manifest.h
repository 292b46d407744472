// The exceptions: which cases or operators a mode passes over, and why. What is listed here must exist: coverage_test sees to it.
#pragma once

#include <string_view>

namespace onnxtrain::cases {

enum class Mode { kCpuForward, kCpuGradient, kFinite, kDecomposition, kHost, kAutograd, kCase };

struct Exception {
  Mode mode;
  std::string_view name;  // of a case; for kCase, of an operator
  std::string_view reason;
};

inline constexpr Exception kExceptions[] = {
    {Mode::kDecomposition, "CrossEntropy_hostile", "labels outside the classes: only that they are harmless is promised"},
    {Mode::kDecomposition, "CrossEntropyGrad_hostile", "labels outside the classes: only that they are harmless is promised"},
    {Mode::kFinite, "CrossEntropyGrad_hostile", "its gradient is that of the decomposition, which need not agree here"},
    {Mode::kAutograd, "CrossEntropyGrad_hostile", "its gradient is that of the decomposition, which need not agree here"},
    {Mode::kHost, "CrossEntropy_hostile", "labels outside the classes: only that they are harmless is promised"},
    {Mode::kHost, "CrossEntropyGrad_hostile", "labels outside the classes: only that they are harmless is promised"},
};

inline const Exception* ExceptionFor(Mode mode, std::string_view name) {
  for (const Exception& e : kExceptions) {
    if (e.mode == mode && e.name == name) return &e;
  }
  return nullptr;
}

}  // namespace onnxtrain::cases
