#include "optim/plan/optimizer_choice.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(DefaultRate, ByOrigin) {
  EXPECT_EQ(DefaultRate(false, false), 1e-3);
  EXPECT_EQ(DefaultRate(false, true), 1e-3);
  EXPECT_EQ(DefaultRate(true, false), 1e-4);
  EXPECT_EQ(DefaultRate(true, true), 2e-5);
}

TEST(CheckRates, NumbersAndGlobs) {
  for (const auto& good : std::vector<std::vector<std::string>>{{}, {"auto"}, {"1e-3"}, {"w*=0.1"}, {"0.1", "w=1"}})
    EXPECT_TRUE(CheckRates(good).ok());
  for (const auto& bad : std::vector<std::vector<std::string>>{{"fast"}, {"0"}, {"-1"}, {"w="}, {"=1"}, {"0.1", "0.2"}})
    EXPECT_FALSE(CheckRates(bad).ok()) << bad[0];
}

}  // namespace
}  // namespace onnxtrain
