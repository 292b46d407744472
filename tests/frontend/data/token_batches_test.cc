#include "frontend/data/load/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSamples = 1000, kLongest = 100;

// Samples of 1 to kLongest tokens, each of which is the number of its sample.
class Sequences : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  const std::vector<Column>& columns() const override { return columns_; }
  int64_t Length(int64_t i) const override { return 1 + i * 37 % kLongest; }
  std::string Describe(int64_t i) const override { return std::to_string(i); }
  absl::Status Read(int64_t i, int, const ReadPass&, std::span<std::byte> out) const override {
    auto* values = reinterpret_cast<int64_t*>(out.data());
    for (size_t k = 0; k < out.size() / sizeof(int64_t); ++k) values[k] = static_cast<int64_t>(k) < Length(i) ? i : -1;
    return absl::OkStatus();
  }

 private:
  std::vector<Column> columns_ = {{.name = "ids", .sample = {DType::kInt64, {kLongest}}, .variable = true}};
};

struct EpochCuts {
  std::vector<int64_t> order;
  std::vector<TokenBatches::Cut> cuts;
};
EpochCuts CutEpoch(const TokenBatches& batches, int64_t epoch, bool shuffle = true) {
  EpochCuts e{.order = EpochOrder(kSamples, 7, epoch, shuffle), .cuts = {}};
  e.cuts = batches.CutEpoch(7, epoch, shuffle, &e.order);
  return e;
}

TEST(TokenBatches, HoldEverySampleOnceWithinTheBudget) {
  const Sequences data;
  constexpr int64_t kTokens = 900;
  const TokenBatches batches(data, {.tokens = kTokens}, kLongest, false);
  std::set<std::pair<int64_t, int64_t>> shapes;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto [order, cuts] = CutEpoch(batches, epoch);
    ASSERT_EQ(std::ssize(cuts), batches.size()) << "the same number in every epoch";
    std::vector<int64_t> sorted = order;
    std::ranges::sort(sorted);
    for (int64_t i = 0; i < kSamples; ++i) ASSERT_EQ(sorted[i], i);
    int64_t covered = 0;
    for (const auto& cut : cuts) {
      const int64_t samples = cut.end - cut.begin;
      shapes.emplace(samples, cut.length);
      covered += samples;
      EXPECT_LE(samples * cut.length, kTokens);
      EXPECT_LE(samples, batches.max_samples());
      EXPECT_LE(samples * cut.length, batches.max_tokens());
      for (int64_t k = cut.begin; k < cut.end; ++k) EXPECT_LE(data.Length(order[k]), cut.length);
    }
    EXPECT_EQ(covered, kSamples);
    EXPECT_EQ(cuts[0].length, kLongest) << "too little memory shows at once";
  }
  EXPECT_LE(shapes.size(), 14u) << "one shape for each of 13 lengths, and a smaller batch";
  EXPECT_NE(CutEpoch(batches, 0).order, CutEpoch(batches, 1).order);
  EXPECT_EQ(CutEpoch(batches, 1).order, CutEpoch(batches, 1).order);
}

TEST(TokenBatches, LittleIsPadded) {
  const Sequences data;
  const TokenBatches batches(data, {.tokens = 900}, kLongest, false);
  const auto [order, cuts] = CutEpoch(batches, 5);
  int64_t tokens = 0, padded = 0;
  for (int64_t i = 0; i < kSamples; ++i) tokens += data.Length(i);
  for (const auto& cut : cuts) padded += (cut.end - cut.begin) * cut.length;
  EXPECT_LT(static_cast<double>(padded), 1.25 * static_cast<double>(tokens));
}

TEST(TokenBatches, FollowAccumulationAndLimits) {
  const Sequences data;
  const TokenBudget budget{.tokens = 300, .accumulation = 3, .max_samples = 10};
  EXPECT_EQ(budget.MicroSamples(100), 3);
  EXPECT_EQ(budget.MicroSamples(8), 10);
  EXPECT_EQ(budget.MicroSamples(1000), 1);
  for (const bool drop : {false, true}) {
    const TokenBatches batches(data, budget, kLongest, drop);
    const auto [order, cuts] = CutEpoch(batches, 0, false);
    ASSERT_EQ(std::ssize(cuts), batches.size());
    for (const auto& cut : cuts) {
      const bool last = !drop && &cut == &cuts.back();
      EXPECT_TRUE(last || cut.end - cut.begin == budget.Samples(cut.length));
    }
    EXPECT_EQ(cuts.back().end == kSamples, !drop);
  }
}

std::vector<std::vector<int64_t>> ReadAll(LoaderOptions options) {
  const auto data = std::make_shared<const Sequences>();
  const FeedSpec spec{.feed = "ids", .columns = {0}, .sample = {DType::kInt64, {kLongest}}, .variable = true};
  options.shuffle = true;
  options.tokens = {.tokens = 900};
  auto loader = Loader::Create(data, {spec}, options);
  EXPECT_TRUE(loader.ok()) << loader.status();
  std::vector<std::vector<int64_t>> batches;
  while (loader.ok()) {
    const auto batch = (*loader)->Next();
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok() || *batch == nullptr) break;
    const HostTensor& ids = (*batch)->tensors[0];
    EXPECT_EQ(ids.shape()[0], std::ssize((*batch)->samples));
    for (int64_t r = 0; r < ids.shape()[0]; ++r) EXPECT_EQ(ids.IntAt(r * ids.shape()[1]), (*batch)->samples[r]);
    batches.push_back(ids.ToInts());
    batches.back().push_back(ids.shape()[1]);
  }
  return batches;
}

TEST(TokenBatches, DoNotDependOnWorkersAndContinueAnywhere) {
  const auto whole = ReadAll({.num_workers = 0, .epochs = 2});
  EXPECT_EQ(ReadAll({.num_workers = 4, .epochs = 2}), whole);
  const int64_t per_epoch = std::ssize(whole) / 2;
  for (const int64_t done : {int64_t{1}, per_epoch / 2, per_epoch}) {
    const auto rest = ReadAll({.num_workers = 2,
                               .first_epoch = done / per_epoch,
                               .first_batch = done % per_epoch,
                               .epochs = 2 - done / per_epoch});
    EXPECT_EQ(rest, std::vector(whole.begin() + done, whole.end())) << done;
  }
}

TEST(TokenBatches, AreCounted) {
  const Sequences data;
  const FeedSpec variable{.sample = {DType::kInt64, {kLongest}}, .variable = true};
  EXPECT_EQ(CountBatches(data, {FeedSpec()}, {.batch_size = 32}), 32);
  EXPECT_EQ(CountBatches(data, {FeedSpec()}, {.batch_size = 32, .drop_last = true}), 31);
  EXPECT_EQ(CountBatches(data, {FeedSpec()}, {.batch_size = 5000, .drop_last = true}), 1);
  EXPECT_EQ(CountBatches(data, {variable}, {.tokens = {.tokens = 900}}),
            TokenBatches(data, {.tokens = 900}, kLongest, false).size());
}

}  // namespace
}  // namespace onnxtrain
