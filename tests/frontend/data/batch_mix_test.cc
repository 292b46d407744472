#include "frontend/data/load/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace onnxtrain {
namespace {

constexpr int kHeight = 8, kWidth = 6, kPixels = kHeight * kWidth;

// A batch of pictures of one value each, two planes, with that value as the label.
struct Samples {
  std::vector<float> pixels, labels;
  std::vector<int64_t> indices;

  explicit Samples(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      pixels.insert(pixels.end(), 2 * kPixels, static_cast<float>(i));
      labels.push_back(static_cast<float>(i));
      indices.push_back(100 + i);
    }
  }
  void Mix(MixOptions options, int64_t epoch = 0) {
    options.height = kHeight, options.width = kWidth;
    const MixedFeed feeds[] = {
        {Mixing::kPixels, DType::kFloat32, std::as_writable_bytes(std::span(pixels))},
        {Mixing::kShares, DType::kFloat32, std::as_writable_bytes(std::span(labels))},
    };
    MixBatch(options, {.augment = true, .seed = 7, .epoch = epoch}, indices, feeds);
  }
  std::span<const float> picture(int64_t i) const { return std::span(pixels).subspan(2 * kPixels * i, 2 * kPixels); }
};

TEST(BatchMix, MixupTakesAWeightedMeanOfBothAndOfTheirLabels) {
  Samples s(5);
  s.Mix({.mixup = 1});
  for (int64_t i = 0; i < 5; ++i) {
    for (const float x : s.picture(i)) EXPECT_EQ(x, s.labels[i]);
    EXPECT_LE(std::abs(s.labels[i] - float(i)), std::abs(4 - 2 * float(i)) / 2) << "more than half is its own";
  }
  EXPECT_NE(s.labels[0], 0);
  EXPECT_NE(s.labels[4], 4);
  EXPECT_EQ(s.labels[2], 2) << "the one in the middle stays";
}

TEST(BatchMix, CutmixPastesABoxIntoEveryPlaneAndSharesByItsArea) {
  int cut = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    Samples s(2);
    s.Mix({.cutmix = 1}, epoch);
    const auto picture = s.picture(0);
    int ones = 0, left = kWidth, right = 0, top = kHeight, bottom = 0;
    for (int i = 0; i < kPixels; ++i) {
      EXPECT_EQ(picture[i], picture[kPixels + i]);
      if (picture[i] == 0) continue;
      ++ones;
      left = std::min(left, i % kWidth), right = std::max(right, i % kWidth + 1);
      top = std::min(top, i / kWidth), bottom = std::max(bottom, i / kWidth + 1);
    }
    cut += ones > 0;
    EXPECT_EQ(ones, std::max(0, right - left) * std::max(0, bottom - top)) << "a box";
    EXPECT_FLOAT_EQ(s.labels[0], float(ones) / kPixels);
  }
  EXPECT_GT(cut, 10);
}

TEST(BatchMix, SharesFollowTheirDistribution) {
  const auto mean_share = [](double alpha) {  // of the other sample
    double sum = 0;
    for (int epoch = 0; epoch < 2000; ++epoch) {
      Samples s(2);
      s.Mix({.mixup = alpha}, epoch);
      sum += s.labels[0];
    }
    return sum / 2000;
  };
  EXPECT_NEAR(mean_share(1), 0.25, 0.02);     // uniform: the smaller of two parts
  EXPECT_NEAR(mean_share(0.2), 0.101, 0.02);  // E min(λ, 1 − λ) of Beta(0.2, 0.2)
  EXPECT_NEAR(mean_share(50), 0.46, 0.01);
}

TEST(BatchMix, BothAreDrawnByChanceAndByEpoch) {
  std::set<float> labels;
  for (int epoch = 0; epoch < 10; ++epoch) {
    Samples s(2);
    s.Mix({.mixup = 1, .cutmix = 1}, epoch);
    labels.insert(s.labels[0]);
  }
  EXPECT_GE(labels.size(), 7U);
}

}  // namespace
}  // namespace onnxtrain
