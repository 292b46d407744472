#include "frontend/data/data_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace onnxtrain {
namespace {

std::shared_ptr<const Dataset> Counting(int64_t n) {
  HostTensor t({DType::kInt64, {n}});
  for (int64_t i = 0; i < n; ++i) t.SetInt(i, i);
  return *InMemoryDataset("count", {"i"}, {t});
}

std::vector<int64_t> Rows(const Dataset& d) {
  std::vector<int64_t> rows(d.size());
  for (int64_t i = 0; i < d.size(); ++i) EXPECT_TRUE(d.Read(i, 0, std::as_writable_bytes(std::span(&rows[i], 1))).ok());
  return rows;
}

TEST(SplitDataset, EachSampleOnce) {
  for (bool last : {false, true}) {
    for (int64_t n : {2, 10, 101}) {
      const Split split = SplitDataset(Counting(n), 0.3, last, 42);
      const std::vector<int64_t> train = Rows(*split.train), eval = Rows(*split.eval);
      std::set<int64_t> all(train.begin(), train.end());
      all.insert(eval.begin(), eval.end());
      EXPECT_EQ(train.size() + eval.size(), static_cast<size_t>(n));
      EXPECT_EQ(all.size(), static_cast<size_t>(n));
      EXPECT_EQ(eval.size(), static_cast<size_t>(std::clamp<int64_t>(std::llround(0.3 * n), 1, n - 1)));
      EXPECT_TRUE(std::is_sorted(train.begin(), train.end()) && std::is_sorted(eval.begin(), eval.end()));
      EXPECT_EQ(eval.front() == n - static_cast<int64_t>(eval.size()), last || n == 2) << n;
      EXPECT_EQ(Rows(*SplitDataset(Counting(n), 0.3, last, 42).eval), eval);
    }
  }
}

TEST(ParseSplit, FractionsAndEnds) {
  EXPECT_EQ(ParseSplit("0.1")->fraction, 0.1);
  EXPECT_FALSE(ParseSplit("0.1")->last);
  EXPECT_TRUE(ParseSplit("last:0.25")->last);
  for (const char* bad : {"", "0", "1", "1.5", "-0.1", "last:", "last:1", "first:0.1", "fold", "nan"})
    EXPECT_FALSE(ParseSplit(bad).ok()) << bad;
}

}  // namespace
}  // namespace onnxtrain
