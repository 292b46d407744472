#include "frontend/data/load/sample_order.h"

#include <map>
#include <numeric>
#include <set>

#include "gtest/gtest.h"

namespace onnxtrain {
namespace {

using Order = std::vector<int64_t>;

TEST(Order, IsAPermutation) {
  for (int64_t n : {0, 1, 2, 3, 100, 4097}) {
    const Order order = EpochOrder(n, 42, 3, true);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), static_cast<size_t>(n));
    for (int64_t i : order) EXPECT_TRUE(i >= 0 && i < n);
  }
}

TEST(Order, IsTheIdentityWithoutShuffle) { EXPECT_EQ(EpochOrder(4, 42, 7, false), (Order{0, 1, 2, 3})); }

TEST(Order, DependsOnEveryBitOfSeedAndEpoch) {
  std::set<Order> seen;
  for (int bit = 0; bit < 64; ++bit) seen.insert(EpochOrder(50, uint64_t{1} << bit, 0, true));
  for (int bit = 0; bit < 63; ++bit) seen.insert(EpochOrder(50, 0, int64_t{1} << bit, true));
  EXPECT_EQ(seen.size(), 127u);
  EXPECT_EQ(EpochOrder(50, 9, 9, true), EpochOrder(50, 9, 9, true));
}

// Stored runs resume in the order they began with, so these values must never change.
TEST(Order, IsFixedForEver) {
  EXPECT_EQ(EpochOrder(10, 42, 0, true), (Order{5, 4, 0, 3, 6, 1, 7, 8, 9, 2}));
  EXPECT_EQ(EpochOrder(10, 42, 1, true), (Order{0, 7, 2, 8, 5, 6, 3, 4, 9, 1}));
  EXPECT_EQ(EpochOrder(10, 0x123456789ABCDEF0, (int64_t{1} << 40) + 3, true), (Order{3, 8, 0, 5, 7, 9, 2, 6, 4, 1}));
}

TEST(Order, AllPermutationsAreEquallyLikely) {
  constexpr int kDraws = 24000;
  std::map<Order, int> count;
  for (int epoch = 0; epoch < kDraws; ++epoch) ++count[EpochOrder(4, 1, epoch, true)];
  ASSERT_EQ(count.size(), 24u);
  double chi2 = 0;
  for (const auto& [order, times] : count) chi2 += (times - 1000.0) * (times - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 49.7);  // 23 degrees of freedom, p = 0.001
}

}  // namespace
}  // namespace onnxtrain
