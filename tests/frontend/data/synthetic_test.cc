#include "frontend/data/sources/dataset.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

std::vector<SyntheticColumn> Columns() {
  return {{.name = "x", .sample = {DType::kFloat32, {3, 5}}},
          {.name = "tokens", .sample = {DType::kInt64, {7}}, .low = 10, .high = 17},
          {.name = "mask", .sample = {DType::kBool, {}}}};
}

TEST(Synthetic, FitsTheTypes) {
  const auto data = SyntheticDataset(Columns(), 2000, 1);
  EXPECT_EQ(data->size(), 2000);
  double sum = 0, squares = 0;
  const std::vector<double> x = ColumnValues(*data, 0);
  for (double v : x) sum += v, squares += v * v;
  EXPECT_NEAR(sum / x.size(), 0, 0.03);
  EXPECT_NEAR(squares / x.size(), 1, 0.03);
  const std::vector<double> tokens = ColumnValues(*data, 1), mask = ColumnValues(*data, 2);
  EXPECT_EQ(std::set<double>(tokens.begin(), tokens.end()), (std::set<double>{10, 11, 12, 13, 14, 15, 16}));
  EXPECT_NEAR(std::count(mask.begin(), mask.end(), 1.0), 1000, 120);
}

TEST(Synthetic, IsAFunctionOfSeedAndIndex) {
  const auto a = SyntheticDataset(Columns(), 100, 1), b = SyntheticDataset(Columns(), 50, 1),
             c = SyntheticDataset(Columns(), 100, 2);
  const std::vector<double> x = ColumnValues(*a, 0), y = ColumnValues(*b, 0), z = ColumnValues(*c, 0);
  EXPECT_TRUE(std::equal(y.begin(), y.end(), x.begin()));
  EXPECT_NE(x, z);
  EXPECT_EQ(std::set<double>(x.begin(), x.end()).size(), x.size());  // all distinct
}

}  // namespace
}  // namespace onnxtrain
