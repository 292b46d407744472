#include "optim/plan/optimizer_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace onnxtrain {
namespace {

template <typename Draw>
HostTensor Drawn(Shape shape, Draw draw) {
  HostTensor t({DType::kFloat32, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, draw());
  return t;
}

TEST(ClassifyWeightOrigin, WhatInitializersDraw) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-0.1, 0.1);
  std::normal_distribution<double> normal(0, 0.02);
  const auto truncated = [&] {
    double x;
    do x = normal(random);
    while (std::abs(x) > 0.04);
    return x;
  };
  for (const Shape& shape : {Shape{20, 20}, Shape{64, 128}, Shape{32, 16, 3, 3}}) {
    EXPECT_FALSE(ClassifyWeightOrigin({{"w", Drawn(shape, [&] { return uniform(random); })}}).trained)
        << ToString(shape);
    EXPECT_FALSE(ClassifyWeightOrigin({{"w", Drawn(shape, [&] { return normal(random); })}}).trained)
        << ToString(shape);
    EXPECT_FALSE(ClassifyWeightOrigin({{"w", Drawn(shape, truncated)}}).trained) << ToString(shape);
    EXPECT_FALSE(ClassifyWeightOrigin({{"w", Drawn(shape, [] { return 0.0; })}}).trained) << ToString(shape);
  }
}

TEST(ClassifyWeightOrigin, WhatTrainingLeaves) {
  std::mt19937 random(2);
  std::normal_distribution<double> normal(0, 0.02);
  std::student_t_distribution<double> tails(4);
  EXPECT_TRUE(ClassifyWeightOrigin({{"w", Drawn({64, 128}, [&] { return tails(random); })}}).trained);
  EXPECT_TRUE(ClassifyWeightOrigin({{"w", Drawn({64, 128}, [&] { return 0.01 + normal(random); })}}).trained);
  const HostTensor drawn = Drawn({64, 128}, [&] { return normal(random); });
  // Statistics move when a new model is traced in training mode.
  EXPECT_FALSE(ClassifyWeightOrigin({{"w", drawn}, {"bn.mean", Drawn({8}, [] { return 0.3; }), true}}).trained);
  EXPECT_FALSE(ClassifyWeightOrigin({{"w", drawn},
                                     {"bn.mean", Drawn({8}, [] { return 0.0; }), true},
                                     {"bn.var", Drawn({8}, [] { return 1.0; }), true}})
                   .trained);
}

}  // namespace
}  // namespace onnxtrain
