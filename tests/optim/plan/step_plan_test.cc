#include "optim/plan/step_plan.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

using Maybe = std::optional<int64_t>;

TEST(PlanBatch, AnyTwoDetermineTheThird) {
  struct Row {
    Maybe global, micro, accumulation;
    int64_t want[3];  // 0: an error
  };
  const Row rows[] = {
      {{}, {}, {}, {32, 32, 1}}, {64, {}, {}, {64, 64, 1}}, {{}, 8, {}, {32, 8, 4}},   {{}, {}, 4, {32, 8, 4}},
      {64, 16, {}, {64, 16, 4}}, {64, {}, 4, {64, 16, 4}},  {{}, 16, 4, {64, 16, 4}},  {64, 16, 4, {64, 16, 4}},
      {64, 16, 2, {0, 0, 0}},    {64, 24, {}, {0, 0, 0}},   {64, {}, 3, {0, 0, 0}},    {{}, 48, {}, {48, 48, 1}},
      {{}, {}, 5, {30, 6, 5}},   {1, {}, {}, {1, 1, 1}},    {{}, {}, 32, {32, 1, 32}}, {16, 32, {}, {0, 0, 0}},
      {{}, 7, {}, {7, 7, 1}},    {{}, 32, {}, {32, 32, 1}}, {{}, {}, 1, {32, 32, 1}},  {{}, {}, 64, {64, 1, 64}},
  };
  for (const Row& row : rows) {
    const auto plan = PlanBatch(row.global, row.micro, row.accumulation);
    ASSERT_EQ(plan.ok(), row.want[0] != 0) << row.want[0] << plan.status();
    if (!plan.ok()) continue;
    EXPECT_EQ(plan->global, row.want[0]);
    EXPECT_EQ(plan->micro, row.want[1]);
    EXPECT_EQ(plan->accumulation, row.want[2]);
    EXPECT_EQ(plan->global, plan->micro * plan->accumulation);
  }
}

TEST(PlanSteps, EpochsAndSteps) {
  StepPlan plan = PlanSteps(4, {}, {});
  EXPECT_EQ(plan.per_epoch, 4);
  EXPECT_EQ(plan.epochs, 3);
  EXPECT_EQ(plan.total, 12);
  plan = PlanSteps(3, 2, {});
  EXPECT_EQ(plan.total, 6);
  plan = PlanSteps(4, {}, 10);  // as many epochs as it takes
  EXPECT_EQ(plan.epochs, 3);
  EXPECT_EQ(plan.total, 10);
  plan = PlanSteps(4, 1, 10);  // whichever ends first
  EXPECT_EQ(plan.total, 4);
}

TEST(IntervalSteps, Units) {
  EXPECT_EQ(IntervalSteps({Interval::Unit::kSteps, 7}, 100), 7);
  EXPECT_EQ(IntervalSteps({Interval::Unit::kEpochs, 0.5}, 100), 50);
  EXPECT_EQ(IntervalSteps({Interval::Unit::kEpochs, 0.001}, 100), 1);
  EXPECT_EQ(IntervalSteps({Interval::Unit::kSeconds, 60}, 100), 0);
}

TEST(AutoLogSteps, EnoughLinesAndNotTooMany) {
  EXPECT_EQ(AutoLogSteps({.per_epoch = 1875, .total = 3 * 1875}), 93);
  EXPECT_EQ(AutoLogSteps({.per_epoch = 1875, .total = 300}), 15);
  EXPECT_EQ(AutoLogSteps({.per_epoch = 4, .total = 12}), 1);
  EXPECT_EQ(AutoLogSteps({.per_epoch = 4, .total = 4000}), 66);
  EXPECT_EQ(AutoLogSteps({.per_epoch = 1000000, .total = 3000000}), 500);
}

}  // namespace
}  // namespace onnxtrain
