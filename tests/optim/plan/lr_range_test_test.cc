// Learning rate range test: on curves, and on a model.
#include "optim/loop/lr_range_test.h"

#include <gmock/gmock.h>

#include <cmath>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "optim/plan/training_run.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A loss of 2 that falls to 0.5 around 1e-2 and explodes from 1 on, with noise.
double Valley(double lr, double noise, int64_t i) {
  const double fall = 1.5 / (1 + std::exp(-6 * (std::log10(lr) + 2)));
  return 2 - fall + (lr > 1 ? lr * lr : 0) + noise * std::sin(static_cast<double>(12345 * i));
}

RateTest TestRates(const std::function<double(double lr, int64_t i)>& loss) {
  int64_t i = 0;
  auto test = RunRateTest({}, [&](double lr) -> absl::StatusOr<double> { return loss(lr, i++); });
  EXPECT_TRUE(test.ok()) << test.status();
  return *std::move(test);
}

TEST(RangeTest, SuggestsWhereTheLossFallsFastest) {
  for (const double noise : {0.0, 0.05, 0.2}) {
    const RateTest test = TestRates([&](double lr, int64_t i) { return Valley(lr, noise, i); });
    EXPECT_GT(test.lr, 5e-3) << noise << test.why;
    EXPECT_LT(test.lr, 2e-2) << noise << test.why;
    EXPECT_EQ(test.lr, RoundRate(test.lr));
    EXPECT_THAT(test.why, HasSubstr("the loss falls fastest at"));
    EXPECT_LT(test.curve.size(), 100) << "ends where the loss explodes";
    EXPECT_GT(test.bound, 0.1);
    EXPECT_LT(test.bound, 1);
  }
}

TEST(RangeTest, TellsNothingOfLossesThatDoNotFall) {
  for (const auto& loss : std::vector<std::function<double(double, int64_t)>>{
           [](double, int64_t) { return 1; }, [](double lr, int64_t) { return 1 + lr; },
           [](double, int64_t i) { return 1 + 0.3 * std::sin(12345 * i); }}) {
    const RateTest test = TestRates(loss);
    EXPECT_EQ(test.lr, 0);
    EXPECT_THAT(test.why, HasSubstr("tells nothing: the loss falls by no more than its noise"));
  }
}

TEST(RangeTest, EndsWhereTheLossIsNotFinite) {
  const RateTest never = TestRates([](double, int64_t) { return kNan; });
  EXPECT_TRUE(never.curve.empty());
  EXPECT_THAT(never.why, HasSubstr("not finite at the lowest rate"));
  const RateTest early = TestRates([](double lr, int64_t) { return lr < 2e-6 ? 1 : kNan; });
  EXPECT_EQ(early.lr, 0);
  EXPECT_THAT(early.why, HasSubstr("diverges after 5 updates"));
  const RateTest late = TestRates([](double lr, int64_t i) { return lr < 0.1 ? Valley(lr, 0, i) : kNan; });
  EXPECT_GT(late.lr, 1e-3);
  EXPECT_LE(late.lr, 0.0121) << "a tenth of the rate where it diverged";
}

TEST(RangeTest, RepeatsSkippedUpdatesOfALossScale) {
  const RateTest test = TestRates([](double lr, int64_t i) { return i < 16 ? kNan : Valley(lr, 0, i); });
  EXPECT_EQ(test.curve.front().lr, 1e-6);
  EXPECT_GT(test.lr, 0);
}

TEST(RangeTest, StaysFarFromTheLeastLoss) {
  const RateTest test = TestRates([](double lr, int64_t) { return 2 + std::log10(lr) / -100 - (lr > 0.5 ? 1.5 : 0); });
  EXPECT_LT(test.lr, 10.0 / 3);
}

TEST(RangeTest, RoundsDown) {
  EXPECT_EQ(RoundRate(0.001299), 0.0012);
  EXPECT_EQ(RoundRate(0.0012), 0.0012);
  EXPECT_EQ(RoundRate(9.99e-7), 9.9e-7);
  EXPECT_EQ(RoundRate(10), 10);
}

TEST(RateTrials, TheLowestRateThatIsNearlyTheBest) {
  RateTest test;
  test.trials = {{.lr = 0.003, .falls = {0.01, -0.01, 0.02}},
                 {.lr = 0.0123, .falls = {0.5, 0.6, 0.7}},
                 {.lr = 0.05, .falls = {1.90, 1.95, 2.0}},
                 {.lr = 0.2, .falls = {2.00, 2.05, 2.1}},
                 {.lr = 0.8, .falls = {}}};
  SuggestTrialRate(100, &test);
  EXPECT_EQ(test.lr, 0.05) << test.why;
  EXPECT_THAT(test.why, HasSubstr("trials of 100 updates at 5 rates from 0.003 to 0.8"));
  EXPECT_THAT(ToJson(test), HasSubstr("trials"));
}

TEST(RateTrials, TellNothingWithinTheNoise) {
  RateTest test;
  test.trials = {{.lr = 0.01, .falls = {0.1, -0.2, 0.3, -0.1}}, {.lr = 0.1, .falls = {-1, -2, -3, -4}}, {.lr = 1}};
  SuggestTrialRate(100, &test);
  EXPECT_EQ(test.lr, 0);
  EXPECT_EQ(test.trials.back().median_fall(), -std::numeric_limits<double>::infinity());
}

TEST(RateTrials, AreFewInShortRuns) {
  EXPECT_EQ(TrialUpdates(3, true), 0);
  EXPECT_EQ(TrialUpdates(79, true), 0);
  EXPECT_EQ(TrialUpdates(80, true), 20);
  EXPECT_EQ(TrialUpdates(100, true), 25);
  EXPECT_EQ(TrialUpdates(1000, true), 250);
  EXPECT_EQ(TrialUpdates(4000, false), 200);
  EXPECT_EQ(TrialUpdates(1'000'000, false), 400);
}

TEST(RateTrials, AreFarApartWhereTheCurveTellsNothing) {
  RateTest test;
  EXPECT_THAT(TrialRates(test, 0.05), testing::ElementsAre(0.05 / 16, 0.05 / 4, 0.05, 0.2, 0.8));
  test.lr = 0.9;
  EXPECT_THAT(TrialRates(test, 0.05), testing::Pointwise(testing::DoubleNear(1e-9), {0.1, 0.3, 0.9, 2.7, 8.1}));
}

TEST(RateTrials, NoneThatLearnsTakesBackTheCurve) {
  RateTest test{.lr = 0.9};
  test.trials = {{.lr = 0.3, .falls = {0.1, -0.2, 0.3, -0.1}}, {.lr = 0.9}};
  SuggestTrialRate(100, &test);
  EXPECT_EQ(test.lr, 0);
  EXPECT_THAT(test.why, HasSubstr("no trial of 100 updates lowers the loss by more than its noise"));
}

class LrFind : public Scratch {
 protected:
  LrFind() {
    tiny::Mlp(3, "Softmax").Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    config_ = {.model = Path("m.onnx"), .data = Path("d.npz"), .lr_find = true, .epochs = 3};
  }

  static std::map<std::string, HostTensor> TrainedWeights(TrainingRun* run) {
    TrainObserver observer;
    EXPECT_TRUE(Train(*run->session, run->train, run->eval, run->options, observer).ok());
    return run->session->Weights().value();
  }

  TrainConfig config_;
};

TEST_F(LrFind, LeavesNoTraceButTheRate) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    config_.optimizer = optimizer;
    config_.lr_find = true;
    config_.lr = {"*b1=1e-3"};
    auto found = PrepareTraining(config_);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_GT(found->rate_test->lr, 0) << found->rate_test->why;
    EXPECT_EQ(found->optimizer.spec.lr, found->rate_test->lr);
    EXPECT_EQ(found->optimizer.spec.lr_factors.at("b1"), 1e-3 / found->rate_test->lr);
    const TrainConfig resolved = ResolveConfig(*found);
    EXPECT_FALSE(IsSpecified(resolved, "lr_find"));
    auto given = PrepareTraining(resolved);
    ASSERT_TRUE(given.ok()) << given.status();
    EXPECT_FALSE(given->rate_test.has_value());
    auto weights = TrainedWeights(&*found), same = TrainedWeights(&*given);
    for (const auto& [name, value] : weights) EXPECT_TRUE(value.SameBytes(same.at(name))) << name;
  }
}

TEST_F(LrFind, ScalesWithTheBatchAsTheGivenRateDoes) {
  config_.lr_scale = "sqrt";
  const auto found = PrepareTraining(config_);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto given = PrepareTraining(ResolveConfig(*found));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(found->optimizer.spec.lr, given->optimizer.spec.lr);
  EXPECT_NEAR(found->optimizer.spec.lr, found->rate_test->lr, 0.1 * found->rate_test->lr);
}

TEST_F(LrFind, KeepsTheRateWhereTheCurveTellsNothing) {
  config_.freeze = {"w*", "b1"};
  config_.class_weights = {1, 0, 0};
  config_.lr_find = true;
  HostTensor x({DType::kFloat32, {96, 4}}), y({DType::kInt64, {96}});
  tiny::Model m = tiny::Mlp(3, "Softmax");
  for (auto& weight : m.weights) {
    if (weight.name == "b2") weight.values = {100, 0, 0};  // already sure
  }
  m.Save(config_.model);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
  const auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->rate_test->lr, 0);
  EXPECT_EQ(run->optimizer.spec.lr, 1e-3);
  EXPECT_THAT(run->warnings, testing::Contains(HasSubstr("`lr_find`: the range test tells nothing")));
}

// Weights near 0 are a plateau, which updates at rates that rise from far too small ones do not leave.
TEST_F(LrFind, TrialsFindARateOnAPlateau) {
  tiny::Model m = tiny::Mlp(3, "Softmax");
  for (auto& weight : m.weights) {
    for (float& value : weight.values) value *= weight.name.starts_with("w") ? 1e-3f : 0.0f;
  }
  m.Save(config_.model);
  config_.optimizer = "sgd";
  config_.epochs = 1000;
  auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  const RateTest& test = *run->rate_test;
  ASSERT_GT(test.lr, 0) << test.why;
  EXPECT_EQ(run->optimizer.spec.lr, test.lr);
  run->options.epochs = 100;
  TrainObserver observer;
  const auto trained = Train(*run->session, run->train, run->eval, run->options, observer);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LT(trained->final_loss, 0.3) << test.why;
}

TEST_F(LrFind, GradientDescentHasRatesOfItsOwn) {
  config_.lr_find = false;
  config_.optimizer = "sgd";
  const auto plain = PrepareTraining(config_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->optimizer.spec.lr, 0.05);
  config_.momentum = 0.9;
  const auto momentum = PrepareTraining(config_);
  ASSERT_TRUE(momentum.ok()) << momentum.status();
  EXPECT_EQ(momentum->optimizer.spec.lr, 0.01);
}

TEST_F(LrFind, LongRunsOfGradientDescentNeedNotAsk) {
  config_.lr_find = false;
  config_.epochs = 400;  // 1,200 updates
  const auto tests = [&] {
    const auto run = PrepareTraining(config_);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() && run->rate_test.has_value();
  };
  EXPECT_FALSE(tests());
  config_.optimizer = "sgd";
  EXPECT_TRUE(tests());
  config_.lr = {"0.1"};
  EXPECT_FALSE(tests());
  config_.lr = {};
  config_.epochs = 3;
  EXPECT_FALSE(tests());
}

TEST_F(LrFind, ContradictsAGivenRate) {
  config_.lr = {"0.1"};
  EXPECT_THAT(std::string(ToStd(PrepareTraining(config_).status().message())),
              HasSubstr("`lr_find`: finds the learning rate, which `lr` specifies too"));
}

}  // namespace
}  // namespace onnxtrain
