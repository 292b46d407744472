#include "frontend/data/text/token_rows.h"

#include <gmock/gmock.h>

#include <cstring>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;

std::vector<int64_t> ReadRow(const Dataset& data, int64_t row, BlockRole role, int64_t length) {
  std::vector<int64_t> values(length);
  EXPECT_TRUE(data.Read(row, static_cast<int>(role), std::as_writable_bytes(std::span(values))).ok());
  return values;
}

std::shared_ptr<const Dataset> MakeSource() {
  return *InMemoryDataset("c.jsonl", {"x"}, {HostTensor({DType::kInt64, {3}})});
}

// Samples 1 2 3, of which 2 and 3 are trained, and 4 5, of which 5 is.
AnsweredSamples MakeSamples() {
  AnsweredSamples samples;
  samples.Add({{1, 2, 3}, {1, 1, 1}}, 0);
  samples.Add({{4, 5}, {0, 1}}, 2);
  return samples;
}

TEST(TokenRows, PadSamples) {
  const TokenRows rows(MakeSource(), MakeSamples(), {{0}, {1}}, {.length = 3, .pad = 9, .max_id = 5}, false);
  EXPECT_EQ(rows.size(), 2);
  EXPECT_EQ(rows.Length(0), 3);
  EXPECT_EQ(rows.Length(1), 2);
  EXPECT_TRUE(rows.columns()[0].variable);
  EXPECT_THAT(ReadRow(rows, 0, BlockRole::kIds, 4), ElementsAre(1, 2, 3, 9));
  EXPECT_THAT(ReadRow(rows, 0, BlockRole::kLabels, 4), ElementsAre(2, 3, -100, -100));
  EXPECT_THAT(ReadRow(rows, 0, BlockRole::kOwnLabels, 3), ElementsAre(-100, 2, 3));
  EXPECT_THAT(ReadRow(rows, 1, BlockRole::kLabels, 3), ElementsAre(5, -100, -100));
  EXPECT_THAT(ReadRow(rows, 1, BlockRole::kMask, 3), ElementsAre(1, 1, 0));
  EXPECT_THAT(ReadRow(rows, 1, BlockRole::kPositions, 3), ElementsAre(0, 1, 2));
}

TEST(TokenRows, KeepPackedSamplesApart) {
  const BlockOptions options{.length = 6, .max_id = 5, .separate = true};
  const TokenRows packed(MakeSource(), MakeSamples(), {{0, 1}}, options, true);
  const Dataset& rows = packed;
  EXPECT_THAT(ReadRow(rows, 0, BlockRole::kIds, 6), ElementsAre(1, 2, 3, 4, 5, 0));
  EXPECT_THAT(ReadRow(rows, 0, BlockRole::kLabels, 6), ElementsAre(2, 3, -100, 5, -100, -100));
  EXPECT_THAT(ReadRow(rows, 0, BlockRole::kPositions, 6), ElementsAre(0, 1, 2, 0, 1, 0));
  std::vector<std::byte> sees(36);
  ASSERT_TRUE(rows.Read(0, static_cast<int>(BlockRole::kAttention), sees).ok());
  for (int query = 0; query < 5; ++query) {
    for (int key = 0; key < 5; ++key)
      EXPECT_EQ(sees[query * 6 + key] != std::byte{0}, key <= query && (key < 3) == (query < 3)) << query << key;
  }
}

TEST(PackSamples, FillsTheFullestRowThatHasRoom) {
  EXPECT_THAT(PackSamples({3, 5, 2, 4, 1}, 6), ElementsAre(ElementsAre(1, 4), ElementsAre(3, 2), ElementsAre(0)));
  EXPECT_THAT(PackSamples({6, 6}, 6), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_TRUE(PackSamples({}, 6).empty());
}

TEST(PackSamples, PlacesEachSampleOnce) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 1000; ++i) lengths.push_back(1 + i * 7919 % 97);
  std::vector<int> placed(lengths.size());
  int64_t total = 0;
  const auto rows = PackSamples(lengths, 128);
  for (const std::vector<int64_t>& row : rows) {
    int64_t used = 0;
    for (const int64_t sample : row) {
      ++placed[sample];
      used += lengths[sample];
    }
    EXPECT_LE(used, 128);
    total += used;
  }
  EXPECT_THAT(placed, testing::Each(1));
  EXPECT_GT(static_cast<double>(total) / static_cast<double>(128 * rows.size()), 0.97);
}

}  // namespace
}  // namespace onnxtrain
