// The 8-bit dynamic code, against its definition.
#include "frontend/ops/dynamic_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace onnxtrain {
namespace {

TEST(DynamicCode, HasTheValuesOfItsDefinition) {
  for (const bool is_signed : {false, true}) {
    std::multiset<float> want = {0, 1};
    for (int exponent = -6; exponent <= 0; ++exponent) {
      const int intervals = (is_signed ? 1 : 2) << (exponent + 6);
      for (int i = 0; i < intervals; ++i) {
        const double low = 0.1 + 0.9 * i / intervals, high = 0.1 + 0.9 * (i + 1) / intervals;
        const auto value = static_cast<float>(std::pow(10.0, exponent) * (low + high) / 2);
        want.insert(value);
        if (is_signed) want.insert(-value);
      }
    }
    const auto& values = GetDynamicCode(is_signed).values;
    ASSERT_EQ(want.size(), values.size());
    ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
    auto expected = want.begin();
    for (const float value : values) EXPECT_NEAR(value, *expected++, 1e-7 * std::fabs(value)) << is_signed;
  }
  // These values are those of create_dynamic_map(True) and create_dynamic_map(False) of bitsandbytes.
  EXPECT_FLOAT_EQ(GetDynamicCode(true).values[0], -0.99296875f);
  EXPECT_FLOAT_EQ(GetDynamicCode(true).values[128], 5.5e-7f);
  EXPECT_FLOAT_EQ(GetDynamicCode(false).values[1], 3.25e-7f);
  EXPECT_FLOAT_EQ(GetDynamicCode(false).values[254], 0.996484375f);
}

// Returns the code with the nearest value, of two equally near ones that of the smaller magnitude.
int FindNearest(const DynamicCode& code, float x) {
  int best = code.zero;
  for (int i = 0; i < 256; ++i) {
    const double distance = std::fabs(double{code.values[i]} - x), least = std::fabs(double{code.values[best]} - x);
    const bool smaller = std::fabs(code.values[i]) < std::fabs(code.values[best]);
    if (distance < least || (distance == least && smaller)) best = i;
  }
  return best;
}

TEST(DynamicCode, EncodesTheNearestValue) {
  for (const bool is_signed : {false, true}) {
    const DynamicCode& code = GetDynamicCode(is_signed);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(code.Encode(code.values[i]), i) << is_signed;
    const double least = 2 * code.thresholds[1];
    for (int i = 1; i < 20'000; ++i) {
      const auto x = static_cast<float>(std::exp(std::log(least) * i / 20'000) * (is_signed && i % 2 == 0 ? -1 : 1));
      const int got = code.Encode(x), want = FindNearest(code, x);
      const double excess =
          std::fabs(double{code.values[got]} - x) - std::fabs(double{code.values[want]} - x);  // at rounded thresholds
      EXPECT_LE(excess, 1e-7 * std::fabs(x)) << x << " as " << got << " and not " << want;
    }
  }
}

TEST(DynamicCode, RoundsTiesToTheSmallerMagnitude) {
  const DynamicCode& code = GetDynamicCode(true);
  for (size_t k = 0; k + 1 < code.thresholds.size(); ++k) {
    const float tie = code.thresholds[k], above = std::nextafter(tie, 1.0f);
    const int zero = code.zero, count = static_cast<int>(k);
    EXPECT_EQ(code.Encode(tie), zero + count);
    EXPECT_EQ(code.Encode(-tie), zero - count);
    EXPECT_EQ(code.Encode(above), zero + count + 1);
    EXPECT_EQ(code.Encode(-above), zero - count - 1);
  }
  EXPECT_EQ(code.Encode(-1.0f), 0);
  EXPECT_EQ(code.Encode(std::numeric_limits<float>::quiet_NaN()), code.zero);
}

TEST(DynamicCode, KeepsSecondMomentsAboveZero) {
  const DynamicCode& code = GetDynamicCode(false);
  EXPECT_EQ(code.Encode(0.0f), 0);
  EXPECT_EQ(code.Encode(1e-30f), 1);
  EXPECT_EQ(code.Encode(-1.0f), 0);
}

}  // namespace
}  // namespace onnxtrain
