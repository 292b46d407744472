#include "frontend/graph/type.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(Type, BroadcastShapes) {
  EXPECT_EQ(BroadcastShapes({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(BroadcastShapes({}, {5}), (Shape{5}));
  EXPECT_EQ(BroadcastShapes({0}, {1}), (Shape{0}));
  EXPECT_FALSE(BroadcastShapes({2}, {3}).has_value());
}

TEST(Type, CheckShapeRefusesOverflow) {
  EXPECT_TRUE(CheckShape({1 << 20, 1 << 20}).ok());
  EXPECT_FALSE(CheckShape({int64_t{1} << 31, int64_t{1} << 31}).ok());
  EXPECT_FALSE(CheckShape({0, int64_t{1} << 62, int64_t{1} << 62}).ok());
  EXPECT_FALSE(CheckShape({-1}).ok());
}

}  // namespace
}  // namespace onnxtrain
