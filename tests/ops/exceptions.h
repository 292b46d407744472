// The exceptions: which cases a mode is known to fail for, and why. A mode runs its exceptions too: one that passes has
// to be deleted here.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string_view>

#include "tests/ops/cases/cases.h"

namespace onnxtrain::cases {

enum class Mode { kHost, kFinite, kDecomposition, kDecompositionGradient, kAutograd, kPlugin, kCase };

struct Exception {
  Mode mode;
  std::string_view name;  // of a case, or of an operator: all of its cases. For kCase, of an operator without a case
  std::string_view reason;
};

inline constexpr std::string_view kNegative =
    "unsigned 64-bit numbers above 2^63 are negative in the host's evaluation (host_eval.h)";
inline constexpr std::string_view kHostile = "labels outside the classes: only that they are harmless is promised";

inline constexpr std::string_view kNoHost = "it has no host evaluation: folding constants does not need it";
inline constexpr std::string_view kCollective = "it exchanges values between ranks";
inline constexpr std::string_view kRandom = "it draws numbers on the device";

inline constexpr Exception kExceptions[] = {
    {Mode::kDecomposition, "CrossEntropy_hostile", kHostile},
    {Mode::kDecomposition, "CrossEntropyGrad_hostile", kHostile},
    {Mode::kDecompositionGradient, "CrossEntropy_hostile", kHostile},
    {Mode::kDecompositionGradient, "CrossEntropyGrad_hostile", kHostile},
    {Mode::kDecompositionGradient, "StraightThrough", "decomposed, it is its value, whose gradient it replaces"},
    {Mode::kPlugin, "CrossEntropy_hostile", kHostile},
    {Mode::kPlugin, "CrossEntropyGrad_hostile", kHostile},
    {Mode::kPlugin, "CrossEntropy_one_class_smooth",
     "its gradient is 0, and the rounding of a number of the size of 1 where the loss is decomposed"},
    {Mode::kFinite, "StraightThrough", "its gradient is by definition not that of its value"},
    {Mode::kFinite, "CrossEntropyGrad_hostile", "its gradient is that of the decomposition, which need not agree here"},
    {Mode::kAutograd, "CrossEntropyGrad_hostile",
     "its gradient is that of the decomposition, which need not agree here"},
    {Mode::kHost, "CrossEntropy_hostile", kHostile},
    {Mode::kHost, "CrossEntropyGrad_hostile", kHostile},
    {Mode::kHost, "AveragePool", kNoHost},
    {Mode::kHost, "AveragePoolGrad", kNoHost},
    {Mode::kHost, "Cofactor", kNoHost},
    {Mode::kHost, "Conv", kNoHost},
    {Mode::kHost, "ConvTranspose", kNoHost},
    {Mode::kHost, "ConvWeightGrad", kNoHost},
    {Mode::kHost, "GridSampleGridGrad", kNoHost},
    {Mode::kHost, "GridSampleInputGrad", kNoHost},
    {Mode::kHost, "MaxPool", kNoHost},
    {Mode::kHost, "MaxPoolGrad", kNoHost},
    {Mode::kHost, "RoiAlign", kNoHost},
    {Mode::kHost, "RoiAlignGrad", kNoHost},
    {Mode::kHost, "AllGather", kCollective},
    {Mode::kHost, "AllReduce", kCollective},
    {Mode::kHost, "AwaitGather", kCollective},
    {Mode::kHost, "ReduceScatter", kCollective},
    {Mode::kHost, "RandomNormal", kRandom},
    {Mode::kHost, "RandomUniform", kRandom},
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

inline const Exception* ExceptionFor(Mode mode, const Case& c) {
  for (const Exception& e : kExceptions) {
    if (e.mode == mode && (e.name == c.name || e.name == c.op)) return &e;
  }
  return nullptr;
}

// Runs a mode for a case. Where the case is an exception, the mode must fail, and the test counts as skipped.
template <typename Body>
void RunMode(Mode mode, const Case& c, const Body& body) {
  const Exception* exception = ExceptionFor(mode, c);
  if (exception == nullptr) return body();
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter intercept(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    body();
  }
  int failures = 0;
  for (int i = 0; i < results.size(); ++i) failures += results.GetTestPartResult(i).failed();
  ASSERT_GT(failures, 0) << c.name << " passes: delete the exception of this mode in tests/ops/exceptions.h";
  GTEST_SKIP() << "EXCEPTION: " << exception->reason;
}

}  // namespace onnxtrain::cases
