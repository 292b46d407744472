#include "tools/onnxtrain/train_plan.h"

#include <gtest/gtest.h>

namespace onnxtrain::cli {
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
      {{}, {}, 5, {0, 0, 0}},    {1, {}, {}, {1, 1, 1}},    {{}, {}, 32, {32, 1, 32}}, {16, 32, {}, {0, 0, 0}},
      {{}, 7, {}, {7, 7, 1}},    {{}, 32, {}, {32, 32, 1}}, {{}, {}, 1, {32, 32, 1}},
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
  StepPlan plan = PlanSteps(100, 32, false, {}, {});
  EXPECT_EQ(plan.per_epoch, 4);
  EXPECT_EQ(plan.epochs, 3);
  EXPECT_EQ(plan.total, 12);
  plan = PlanSteps(100, 32, true, 2, {});
  EXPECT_EQ(plan.per_epoch, 3);
  EXPECT_EQ(plan.total, 6);
  plan = PlanSteps(100, 32, false, {}, 10);  // as many epochs as it takes
  EXPECT_EQ(plan.epochs, 3);
  EXPECT_EQ(plan.total, 10);
  plan = PlanSteps(100, 32, false, 1, 10);  // whichever ends first
  EXPECT_EQ(plan.total, 4);
  plan = PlanSteps(5, 32, true, {}, {});
  EXPECT_EQ(plan.per_epoch, 1);
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

TEST(ParseBetas, TwoBelowOne) {
  EXPECT_EQ(*ParseBetas("0.8,0.95"), (std::pair{0.8, 0.95}));
  for (const char* bad : {"", "0.9", "0.9,1", "-0.1,0.9", "0.9,0.99,0.9", "a,b", "0.9 0.99"})
    EXPECT_FALSE(ParseBetas(bad).ok()) << bad;
}

TEST(WhyNoEffect, EveryFlagThatMayMeanNothing) {
  RunFacts facts{.optimizer = "adamw", .scheduler = "constant"};
  struct Row {
    const char* flag;
    std::function<void(RunFacts&)> makes_sense, makes_none;
  };
  const Row rows[] = {
      {"momentum", [](RunFacts& f) { f.optimizer = "sgd"; }, [](RunFacts& f) { f.optimizer = "adamw"; }},
      {"momentum", [](RunFacts& f) { f.optimizer = "lars"; }, [](RunFacts& f) { f.optimizer = "lion"; }},
      {"dampening", [](RunFacts& f) { f.optimizer = "sgd", f.momentum = 0.9; }, [](RunFacts& f) { f.optimizer = "sgd"; }},
      {"nesterov", [](RunFacts& f) { f.optimizer = "sgd", f.momentum = 0.9; }, [](RunFacts& f) { f.optimizer = "rmsprop", f.momentum = 0.9; }},
      {"eps", [](RunFacts& f) { f.optimizer = "lamb"; }, [](RunFacts& f) { f.optimizer = "adafactor"; }},
      {"warmup", [](RunFacts& f) { f.scheduler = "wsd"; }, [](RunFacts& f) { f.scheduler = "one_cycle"; }},
      {"betas", [](RunFacts& f) { f.optimizer = "adam"; }, [](RunFacts& f) { f.optimizer = "sgd"; }},
      {"eps", [](RunFacts& f) { f.optimizer = "adam"; }, [](RunFacts& f) { f.optimizer = "sgd"; }},
      {"no_decay", [](RunFacts& f) { f.weight_decay = 0.1; }, [](RunFacts& f) { f.weight_decay = 0; }},
      {"min_lr", [](RunFacts& f) { f.scheduler = "cosine"; }, [](RunFacts& f) { f.scheduler = "constant"; }},
      {"label_smoothing", [](RunFacts& f) { f.loss_takes = "label_smoothing ignore_index"; },
       [](RunFacts& f) { f.loss_takes = "ignore_index"; }},
      {"ignore_index", [](RunFacts& f) { f.loss_takes = "ignore_index"; }, [](RunFacts& f) { f.loss_takes = ""; }},
      {"eval_every", [](RunFacts& f) { f.has_eval = true; }, [](RunFacts& f) { f.has_eval = false; }},
      {"normalize", [](RunFacts& f) { f.has_images = true; }, [](RunFacts& f) { f.has_images = false; }},
      {"header", [](RunFacts& f) { f.is_table = true; }, [](RunFacts& f) { f.is_table = false; }},
      {"batch_norm", [](RunFacts& f) { f.has_batch_norm = true; }, [](RunFacts& f) { f.has_batch_norm = false; }},
      {"dropout", [](RunFacts& f) { f.has_dropout = true; }, [](RunFacts& f) { f.has_dropout = false; }},
      {"eval_split", [](RunFacts& f) { f.eval_data_given = false; }, [](RunFacts& f) { f.eval_data_given = true; }},
      {"epochs", [](RunFacts& f) { f.has_data = true; }, [](RunFacts& f) { f.has_data = false; }},
      {"label", [](RunFacts& f) { f.has_data = true; }, [](RunFacts& f) { f.has_data = false; }},
  };
  for (const Row& row : rows) {
    RunFacts with = facts, without = facts;
    row.makes_sense(with);
    row.makes_none(without);
    EXPECT_EQ(WhyNoEffect(row.flag, with), "") << row.flag;
    EXPECT_NE(WhyNoEffect(row.flag, without), "") << row.flag;
  }
  EXPECT_EQ(WhyNoEffect("lr", facts), "");
}

TEST(DefaultRate, ByOrigin) {
  EXPECT_EQ(DefaultRate(false, false), 1e-3);
  EXPECT_EQ(DefaultRate(false, true), 1e-3);
  EXPECT_EQ(DefaultRate(true, false), 1e-4);
  EXPECT_EQ(DefaultRate(true, true), 2e-5);
}

}  // namespace
}  // namespace onnxtrain::cli
