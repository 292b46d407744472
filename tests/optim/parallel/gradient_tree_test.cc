#include "optim/parallel/gradient_tree.h"

#include <cmath>
#include <string>

#include "backends/registry.h"
#include "optim/parallel/traffic.h"
#include "tests/optim/parallel/gloo_ranks.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

TEST(CoverMicros, TakesTheLargestNodes) {
  using Nodes = std::vector<TreeNode>;
  EXPECT_EQ(CoverMicros(0, 8), (Nodes{{0, 3}}));
  EXPECT_EQ(CoverMicros(0, 7), (Nodes{{0, 2}, {4, 1}, {6, 0}}));
  EXPECT_EQ(CoverMicros(1, 8), (Nodes{{1, 0}, {2, 1}, {4, 2}}));
  EXPECT_EQ(CoverMicros(2, 7), (Nodes{{2, 1}, {4, 1}, {6, 0}}));
  EXPECT_EQ(CoverMicros(5, 5), Nodes());
}

// Of 7 micro-batches on 2 ranks, rank 0 has the first 3: it adds the third to the sum of two.
TEST(TreeBuffers, AreThoseOfTheLargestMoment) {
  EXPECT_EQ(CountTreeBuffers(1, 0, 1), 1);
  EXPECT_EQ(CountTreeBuffers(8, 0, 1), 4);
  EXPECT_EQ(CountTreeBuffers(7, 0, 2), 2);
  EXPECT_EQ(CountTreeBuffers(2, 0, 4), 0) << "without a share";
  EXPECT_EQ(CountTreeBuffers(8, FindLargestTree(8, 3), 3), 3);
}

TEST(Traffic, CountsReducedAndGatheredParts) {
  EXPECT_EQ(SentBytes({.ranks = 4, .gradient_bytes = 4000}), 6000);
  EXPECT_EQ(SentBytes({.ranks = 4, .gradient_bytes = 4000, .send_bf16 = true}), 3000);
  EXPECT_EQ(SentBytes({.ranks = 4, .gradient_bytes = 4000, .shard = ShardLevel::kOptimizer}), 9000);
  const auto scattered = [](int64_t rounds) {
    return SentBytes({.ranks = 4, .gradient_bytes = 4000, .shard = ShardLevel::kGradients, .rounds_of_micros = rounds});
  };
  EXPECT_EQ(scattered(1), 6000);
  EXPECT_EQ(scattered(3), 12000);
  EXPECT_EQ(SentBytes({.ranks = 4, .gradient_bytes = 4000, .micros = 8}), 6000);
  EXPECT_EQ(SentBytes({.ranks = 4, .gradient_bytes = 4000, .micros = 7}), 9000) << "ranks with two nodes";
}

TEST(Traffic, HasTheRoundsOfTheRankWithMostMicroBatches) {
  EXPECT_EQ(CountRounds(16, 4, 1, 2), 2);
  EXPECT_EQ(CountRounds(10, 4, 1, 2), 2) << "samples 0-4, of two micro-batches, and 5-9";
  EXPECT_EQ(CountRounds(16, 16, 1, 4), 1);
  EXPECT_EQ(CountRounds(2, 1, 1, 4), 1);
}

// Two pieces of memory of sizes that no number of ranks divides.
class Trees : public Scratch {
 protected:
  static constexpr size_t kSums = 1801, kOthers = 203;

  static void Fill(int64_t micro, std::vector<float>* sums, std::vector<float>* others) {
    for (size_t i = 0; i < kSums; ++i) (*sums)[i] = std::sin(static_cast<float>(i + 7 * micro) * 1.3f);
    for (size_t i = 0; i < kOthers; ++i) (*others)[i] = std::cos(static_cast<float>(i + 5 * micro) * 0.9f);
  }

  // Returns what each rank has in the end. `ranks`: null for one.
  static std::vector<float> SumMicros(int64_t micros, Collectives* ranks) {
    const auto backend = CreateBackend("cpu", {.threads = 1}).value();
    std::vector<float> sums(kSums), others(kOthers);
    GradientTree tree(backend.get(), DType::kFloat32,
                      {std::as_writable_bytes(std::span(sums)), std::as_writable_bytes(std::span(others))});
    EXPECT_TRUE(tree.Begin(micros, ranks ? ranks->rank() : 0, ranks ? ranks->size() : 1).ok());
    for (int64_t micro = tree.share().begin; micro < tree.share().end; ++micro) {
      Fill(micro, &sums, &others);
      tree.Add();
    }
    if (ranks == nullptr) {
      tree.Finish();
    } else {
      EXPECT_TRUE(tree.FinishTogether(*ranks, "sum").ok());
    }
    sums.insert(sums.end(), others.begin(), others.end());
    return sums;
  }
};

TEST_F(Trees, SumToTheSameBitsOnAnyNumberOfRanks) {
  for (const int64_t micros : {1, 2, 5, 7, 8, 13}) {
    const std::vector<float> one = SumMicros(micros, nullptr);
    double expected = 0;
    for (int64_t m = 0; m < micros; ++m) expected += std::sin(static_cast<float>(100 + 7 * m) * 1.3f);
    EXPECT_NEAR(one[100], expected, 1e-5);
    for (const int size : {2, 3, 4, 5}) {
      RunRanks(Path("meet"), size, [&](Collectives& ranks) {
        EXPECT_EQ(SumMicros(micros, &ranks), one)
            << micros << " micro-batches, rank " << ranks.rank() << " of " << size;
      });
    }
  }
}

}  // namespace
}  // namespace onnxtrain
