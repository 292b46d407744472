// Straight-through estimators: x + (q(x) − x), where the program had detached the difference.
#include "frontend/ops/import/elementwise.h"

#include <gtest/gtest.h>

#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

constexpr DType kF32 = DType::kFloat32;

class StraightThroughTest : public testing::Test {
 protected:
  Val Difference(Val q) { return q - x_; }

  // The gradient with respect to x of a value for dy = 1, 2, 3.
  std::vector<double> Gradient(Val y) {
    const Val dy = b_.Input(InputKind::kFeed, "dy", {kF32, {3}});
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    const Seed seed{y.id(), dy.id()};
    const ValueId wrt = x_.id();
    const auto grads = Differentiate(&graph_, {&seed, 1}, {&wrt, 1});
    EXPECT_TRUE(grads.ok()) << grads.status();
    graph_.AddOutput("dx", grads->at(wrt));
    const auto floats = [](std::vector<double> values) { return HostTensor::FromDoubles({kF32, {3}}, values); };
    const auto results = Interpret(graph_, {{"x", floats({-1.2, 0.3, 2.4})}, {"dy", floats({1, 2, 3})}});
    EXPECT_TRUE(results.ok()) << results.status();
    return results->back().ToDoubles();
  }

  Graph graph_;
  Builder b_{&graph_};
  Val x_ = b_.Input(InputKind::kFeed, "x", {kF32, {3}});
};

TEST_F(StraightThroughTest, PassesTheGradientOfARoundedValue) {
  const Val y = ImportStraightThrough("Add", x_, Difference(Unary("Round", x_ * 2.0) / 2.0));
  ASSERT_TRUE(y);
  EXPECT_EQ(Gradient(y), (std::vector<double>{1, 2, 3}));
}

// As BitNet scales its weights: the scale depends on x smoothly.
TEST_F(StraightThroughTest, PassesNoGradientThroughTheScale) {
  const Val scale =
      Expand(Reshape(b_.Op("ReduceMean", {Unary("Abs", x_)}, {{"axes", std::vector<int64_t>{0}}}), {1}), {3});
  const Val y = ImportStraightThrough("Add", Difference(Unary("Round", x_ / scale) * scale), x_);
  ASSERT_TRUE(y);
  EXPECT_EQ(Gradient(y), (std::vector<double>{1, 2, 3}));
}

TEST_F(StraightThroughTest, KnowsComparisons) {
  const Val one = Expand(b_.Scalar(kF32, 1), {3});
  EXPECT_TRUE(ImportStraightThrough("Add", x_, Difference(Where(Less(x_, 0.0), -one, one))));
}

TEST_F(StraightThroughTest, KnowsDifferences) {
  const Val q = Unary("Round", x_);
  const Val y = ImportStraightThrough("Sub", x_, x_ - q);
  ASSERT_TRUE(y);
  EXPECT_EQ(Gradient(y), (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(ImportStraightThrough("Sub", q + x_, x_));
  EXPECT_TRUE(ImportStraightThrough("Sub", x_ + q, x_));
  EXPECT_FALSE(ImportStraightThrough("Sub", q - x_, x_));
  EXPECT_FALSE(ImportStraightThrough("Mul", x_, q - x_));
}

TEST_F(StraightThroughTest, LeavesSmoothFunctionsAndOtherSumsAlone) {
  const Val other = b_.Input(InputKind::kFeed, "other", {kF32, {3}});
  EXPECT_FALSE(ImportStraightThrough("Add", x_, Difference(Unary("Tanh", x_))));
  EXPECT_FALSE(ImportStraightThrough("Add", x_, Difference(Unary("Round", other))));
  EXPECT_FALSE(ImportStraightThrough("Add", other, Difference(Unary("Round", x_))));
  EXPECT_FALSE(ImportStraightThrough("Add", x_, Unary("Round", x_)));
}

}  // namespace
}  // namespace onnxtrain
