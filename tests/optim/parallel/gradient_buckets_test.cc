#include "optim/parallel/gradient_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

using ::testing::ElementsAre;

// Slices of 100 bytes at multiples of 128.
std::vector<GradientSlice> Slices(size_t first, const std::vector<int64_t>& readers) {
  std::vector<GradientSlice> slices;
  for (size_t i = 0; i < readers.size(); ++i)
    slices.push_back({std::string(1, static_cast<char>('a' + first + i)), (first + i) * 128, 100, readers[i]});
  return slices;
}

std::vector<std::string> Outputs(const std::vector<GradientBucket>& buckets) {
  std::vector<std::string> outputs;
  for (const GradientBucket& bucket : buckets) {
    std::string& text = outputs.emplace_back();
    for (const std::string& output : bucket.outputs) text += output;
  }
  return outputs;
}

TEST(GradientBuckets, ComeInReverseOrderOfTheForwardPass) {
  EXPECT_THAT(Outputs(CutBuckets({Slices(0, {0, 1, 2, 3, 4})}, 256)), ElementsAre("e", "cd", "ab"));
  // Gradients of a bucket are complete with the one that is read first.
  EXPECT_THAT(Outputs(CutBuckets({Slices(0, {7, 8, 9, 1})}, 256)), ElementsAre("ab", "cd"));
}

TEST(GradientBuckets, CoverTheirSlicesWithThePaddingBetween) {
  const auto buckets = CutBuckets({Slices(0, {0, 1, 2})}, 228);
  ASSERT_THAT(Outputs(buckets), ElementsAre("c", "ab"));
  EXPECT_EQ(buckets[0].offset, 256);
  EXPECT_EQ(buckets[0].bytes, 100);
  EXPECT_EQ(buckets[1].offset, 0);
  EXPECT_EQ(buckets[1].bytes, 228);
  EXPECT_THAT(Outputs(CutBuckets({Slices(0, {0, 1, 2})}, 227)), ElementsAre("c", "b", "a"));
}

TEST(GradientBuckets, KeepGroupsApartAndTakeLargeSlicesWhole) {
  EXPECT_THAT(Outputs(CutBuckets({Slices(0, {5, 6}), {}, Slices(2, {1, 2})}, 1000)), ElementsAre("ab", "cd"));
  EXPECT_THAT(Outputs(CutBuckets({Slices(0, {0, 1})}, 1)), ElementsAre("b", "a"));
  EXPECT_TRUE(CutBuckets({}, 1).empty());
}

}  // namespace
}  // namespace onnxtrain
