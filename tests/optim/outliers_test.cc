#include "optim/record/telemetry/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace onnxtrain {
namespace {

// The indices of the outliers.
std::vector<int> FindAll(const std::vector<double>& values) {
  OutlierWindow window;
  std::vector<int> found;
  for (size_t i = 0; i < values.size(); ++i) {
    if (window.Add(values[i])) found.push_back(static_cast<int>(i));
  }
  return found;
}

std::vector<double> Draw(int count, const std::function<double(int i, double normal)>& value) {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(value(i, normal(generator)));
  return values;
}

TEST(Outliers, NoiseHasNone) {
  EXPECT_TRUE(FindAll(Draw(20000, [](int, double x) { return 1 + 0.1 * x; })).empty());
  EXPECT_TRUE(FindAll(Draw(20000, [](int, double x) { return -3 + x; })).empty());
  EXPECT_TRUE(FindAll(Draw(20000, [](int i, double x) { return std::exp(-i / 3000.0) * (1 + 0.2 * x); })).empty());
  EXPECT_TRUE(FindAll(Draw(2000, [](int i, double) { return 1 + 1e-3 * i; })).empty()) << "a slow rise";
  EXPECT_TRUE(FindAll(std::vector<double>(200, 0.25)).empty());
}

TEST(Outliers, HeavyTailsHaveFew) {
  EXPECT_LT(FindAll(Draw(20000, [](int, double x) { return std::exp(x); })).size(), 100);
}

TEST(Outliers, PlantedOnesAreFound) {
  std::vector<double> values = Draw(1000, [](int, double x) { return 1 + 0.1 * x; });
  values[5] = 50;  // nothing is known yet
  values[500] = 5;
  values[700] = 1e9;
  values[701] = 4;
  EXPECT_EQ(FindAll(values), (std::vector<int>{500, 700, 701}));
  values = std::vector<double>(100, -2);
  values[90] = -0.5;
  EXPECT_EQ(FindAll(values), (std::vector<int>{90}));
}

TEST(Outliers, ANewLevelIsNoneForLong) {
  const std::vector<int> found = FindAll(Draw(1000, [](int i, double x) { return (i < 500 ? 1 : 10) + 0.1 * x; }));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(), 500);
  EXPECT_LT(found.back(), 564);
}

TEST(Outliers, NaNIsNone) {
  std::vector<double> values(100, 1);
  values[50] = NAN;
  values[51] = INFINITY;
  values[60] = 9;
  EXPECT_EQ(FindAll(values), (std::vector<int>{60}));
}

TEST(Outliers, GoOnFromTheirState) {
  std::vector<double> values = Draw(300, [](int i, double x) { return i % 50 == 49 ? 20 : 1 + 0.1 * x; });
  OutlierWindow whole, first;
  for (int i = 0; i < 111; ++i) {
    whole.Add(values[i]);
    first.Add(values[i]);
  }
  OutlierWindow second;
  second.values = first.values, second.count = first.count;
  second.median = first.median, second.limit = first.limit;
  for (int i = 111; i < 300; ++i) EXPECT_EQ(whole.Add(values[i]), second.Add(values[i])) << i;
}

}  // namespace
}  // namespace onnxtrain
