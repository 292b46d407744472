#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "optim/generate/write_text.h"

namespace onnxtrain {
namespace {

const std::vector<float> kScores = {0.5f, 2.0f, -1.0f, 1.0f, 1.5f};

std::map<int64_t, int> Draw(const SamplingSpec& spec, int count) {
  TokenSampler sampler(spec, 0);
  std::map<int64_t, int> drawn;
  for (int i = 0; i < count; ++i) ++drawn[sampler.Choose(kScores)];
  return drawn;
}

TEST(TokenSampler, TakesTheBestWithoutATemperature) { EXPECT_EQ(Draw({}, 5), (std::map<int64_t, int>{{1, 5}})); }

// Shares of exp(score / 2): 1.28, 2.72, 0.61, 1.65 and 2.12 of 8.38.
TEST(TokenSampler, DrawsByProbability) {
  constexpr int kCount = 20000;
  const auto drawn = Draw({.temperature = 2}, kCount);
  const double shares[] = {0.1533, 0.3246, 0.0724, 0.1969, 0.2528};
  for (int token = 0; token < 5; ++token) EXPECT_NEAR(drawn.at(token) / double{kCount}, shares[token], 0.015);
}

TEST(TokenSampler, TopKKeepsTheMostProbable) {
  const auto drawn = Draw({.temperature = 5, .top_k = 2}, 200);
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_TRUE(drawn.contains(1) && drawn.contains(4));
}

// At temperature 1 the shares are 0.099, 0.445, 0.022, 0.164 and 0.270, so that three tokens reach 0.8.
TEST(TokenSampler, TopPKeepsWhatReachesTheProbability) {
  EXPECT_EQ(Draw({.temperature = 1, .top_p = 0.4}, 200).size(), 1u);
  const auto drawn = Draw({.temperature = 1, .top_p = 0.8}, 500);
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_TRUE(drawn.contains(1) && drawn.contains(3) && drawn.contains(4));
}

TEST(TokenSampler, TopPCountsAmongTheTopK) {
  EXPECT_EQ(Draw({.temperature = 1, .top_p = 0.6, .top_k = 2}, 300).size(), 1u);  // 0.62 of the two
}

TEST(TokenSampler, SeedsAndTextsDiffer) {
  const auto draw = [](int64_t seed, int64_t text) {
    TokenSampler sampler({.temperature = 3, .seed = seed}, text);
    std::vector<int64_t> drawn;
    for (int i = 0; i < 40; ++i) drawn.push_back(sampler.Choose(kScores));
    return drawn;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

}  // namespace
}  // namespace onnxtrain
