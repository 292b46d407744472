#include "frontend/data/bind/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/frontend/data/files.h"

namespace onnxtrain {
namespace {

std::shared_ptr<const Dataset> Counting(int64_t n, int64_t modulus = 1 << 20) {
  HostTensor t({DType::kInt64, {n}});
  for (int64_t i = 0; i < n; ++i) t.SetInt(i, i % modulus);
  return *InMemoryDataset("count", {"i"}, {t});
}

void ExpectPartition(const SplitRows& rows, int64_t n) {
  std::set<int64_t> all(rows.train.begin(), rows.train.end());
  all.insert(rows.eval.begin(), rows.eval.end());
  EXPECT_EQ(rows.train.size() + rows.eval.size(), static_cast<size_t>(n));
  EXPECT_EQ(all.size(), static_cast<size_t>(n));
  EXPECT_FALSE(rows.train.empty() || rows.eval.empty());
}

TEST(SplitAtEnd, TakesTheLastSamples) {
  for (int64_t n : {2, 10, 101}) {
    const SplitRows rows = SplitAtEnd(n, 0.3);
    ExpectPartition(rows, n);
    EXPECT_EQ(rows.eval.size(), static_cast<size_t>(std::clamp<int64_t>(std::llround(0.3 * n), 1, n - 1)));
    EXPECT_EQ(rows.eval.back(), n - 1);
    EXPECT_TRUE(std::is_sorted(rows.eval.begin(), rows.eval.end()));
  }
}

TEST(SplitByHash, TakesAboutTheFraction) {
  for (int64_t n : {2, 3, 10, 5000}) {
    for (const double fraction : {0.01, 0.3, 0.99}) {
      const SplitRows rows = SplitByHash(*Counting(n), fraction, 42);
      ExpectPartition(rows, n);
      if (n < 5000) continue;
      EXPECT_NEAR(static_cast<double>(rows.eval.size()) / static_cast<double>(n), fraction, 0.03);
    }
  }
  EXPECT_NE(SplitByHash(*Counting(100), 0.5, 1).eval, SplitByHash(*Counting(100), 0.5, 2).eval);
}

TEST(SplitByHash, LaterSamplesMoveNone) {
  const SplitRows before = SplitByHash(*Counting(1000), 0.2, 7);
  SplitRows after = SplitByHash(*Counting(1500), 0.2, 7);
  std::erase_if(after.eval, [](int64_t i) { return i >= 1000; });
  EXPECT_EQ(after.eval, before.eval);
}

TEST(SplitByHash, EqualSamplesAreOnOneSide) {
  const SplitRows rows = SplitByHash(*Counting(1000, 50), 0.5, 7);
  std::set<int64_t> train, eval;
  for (int64_t i : rows.train) train.insert(i % 50);
  for (int64_t i : rows.eval) eval.insert(i % 50);
  EXPECT_EQ(train.size() + eval.size(), 50u);
}

// Another row may turn whole numbers into floats and add classes that sort first.
TEST(SplitByHash, DoesNotDependOnHowAColumnIsStored) {
  TempDir dir;
  std::string text = "a,name\n";
  for (int i = 0; i < 200; ++i) StrAppend(&text, i, ",n", i % 9, "\n");
  const auto before = OpenDataset(dir.Write("a.csv", text), {});
  const auto after = OpenDataset(dir.Write("b.csv", text + "0.5,a0\n"), {});
  ASSERT_TRUE(before.ok() && after.ok());
  ASSERT_NE((*before)->columns()[0].sample.dtype, (*after)->columns()[0].sample.dtype);
  SplitRows rows = SplitByHash(**after, 0.3, 42);
  std::erase(rows.eval, 200);
  EXPECT_EQ(rows.eval, SplitByHash(**before, 0.3, 42).eval);
}

TEST(SplitByColumn, ReadsNamesAndNumbers) {
  TempDir dir;
  const std::string path = dir.Write("t.csv", "x,part,y\n1,train,0\n2,Test,1\n3,dev,0\n");
  EXPECT_EQ(SplitByColumn(3, path, {}, "part")->eval, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(SplitByColumn(3, path, {}, "y")->eval, (std::vector<int64_t>{1}));
  EXPECT_NE(Message(SplitByColumn(3, path, {}, "x").status()).find("puts all samples into evaluation"),
            std::string::npos);
  EXPECT_NE(Message(SplitByColumn(3, path, {}, "fold").status()).find("fold"), std::string::npos);
  const std::string odd = dir.Write("u.csv", "x,part\n1,train\n2,holdout\n");
  EXPECT_NE(Message(SplitByColumn(2, odd, {}, "part").status()).find("got 'holdout'"), std::string::npos);
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
