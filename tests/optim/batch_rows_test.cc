#include "optim/step/batch_feeds.h"

#include <gmock/gmock.h>

namespace onnxtrain {
namespace {

using testing::ElementsAre;

HostTensor Values(const Shape& shape, double value) { return HostTensor::Filled({DType::kFloat32, shape}, value); }

TEST(PlaceRows, JoinsMicroBatches) {
  HostTensor all;
  ASSERT_TRUE(PlaceRows(&all, Values({2, 1}, 1), 0, 2, 5).ok());
  ASSERT_TRUE(PlaceRows(&all, Values({3, 1}, 2), 2, 3, 5).ok());
  EXPECT_THAT(all.ToDoubles(), ElementsAre(1, 1, 2, 2, 2));
  EXPECT_FALSE(PlaceRows(&all, Values({3, 2}, 2), 2, 3, 5).ok()) << "another size";
}

// A value of the whole model has four elements, as a later micro-batch has samples.
TEST(PlaceRows, KeepsTheLastOfOutputsWithoutABatchAxis) {
  HostTensor all;
  ASSERT_TRUE(PlaceRows(&all, Values({4}, 1), 0, 2, 6).ok());
  ASSERT_TRUE(PlaceRows(&all, Values({4}, 2), 2, 4, 6).ok());
  EXPECT_THAT(all.ToDoubles(), ElementsAre(2, 2, 2, 2));
  HostTensor scalar;
  ASSERT_TRUE(PlaceRows(&scalar, Values({}, 1), 0, 2, 3).ok());
  ASSERT_TRUE(PlaceRows(&scalar, Values({1}, 2), 2, 1, 3).ok());
  EXPECT_THAT(scalar.ToDoubles(), ElementsAre(2));
}

}  // namespace
}  // namespace onnxtrain
