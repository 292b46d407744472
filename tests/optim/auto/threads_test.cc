// The number of threads that a small model runs in.
#include "optim/auto/threads.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(FewestFastThreads, AreAsFastAsAny) {
  EXPECT_EQ(FewestFastThreads({{1, 2.0}}), 1);
  EXPECT_EQ(FewestFastThreads({{1, 1.0}, {2, 1.5}}), 1);
  EXPECT_EQ(FewestFastThreads({{1, 1.04}, {2, 1.0}}), 1);
  EXPECT_EQ(FewestFastThreads({{1, 1.8}, {2, 1.0}}), 2);
  EXPECT_EQ(FewestFastThreads({{1, 4.0}, {2, 1.03}, {4, 1.0}, {6, 1.2}}), 2);
}

}  // namespace
}  // namespace onnxtrain
