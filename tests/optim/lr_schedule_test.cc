#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frontend/ops/interpret.h"

namespace onnxtrain {
namespace {

double OnGraph(const ScheduleSpec& spec, double lr, int64_t step) {
  Graph graph;
  Builder b(&graph);
  const Val t = b.Input(InputKind::kFeed, "t", {DType::kFloat64, {}});
  graph.AddOutput("factor", ScheduleFactor(spec, lr, t).id());
  EXPECT_TRUE(b.status().ok()) << b.status();
  auto values = Interpret(graph, {{"t", HostTensor::Scalar(DType::kFloat64, static_cast<double>(step))}});
  EXPECT_TRUE(values.ok()) << values.status();
  return (*values)[0].At(0);
}

TEST(LrSchedule, GraphAndFunctionAgree) {
  for (const char* name : {"constant", "linear", "cosine"}) {
    for (double warmup : {0.0, 0.1, 7.0}) {
      for (double min_lr : {0.0, 0.01}) {
        const ScheduleSpec spec{.name = name, .warmup = warmup, .min_lr = min_lr, .total_steps = 50};
        for (int64_t step : {0, 1, 4, 5, 6, 7, 8, 25, 48, 49, 50, 80}) {
          EXPECT_NEAR(OnGraph(spec, 0.1, step), ScheduleFactor(spec, 0.1, step), 1e-14) << name << " " << warmup << " " << step;
        }
      }
    }
  }
}

TEST(LrSchedule, KnownValues) {
  const ScheduleSpec linear{.name = "linear", .warmup = 10, .total_steps = 110};
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 1, 0), 0.1);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 1, 9), 1.0);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 1, 10), 1.0);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 1, 60), 0.5);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 1, 110), 0.0);
  const ScheduleSpec cosine{.name = "cosine", .min_lr = 0.02, .total_steps = 100};
  EXPECT_DOUBLE_EQ(ScheduleFactor(cosine, 0.1, 0), 1.0);
  EXPECT_NEAR(ScheduleFactor(cosine, 0.1, 50), 0.2 + 0.8 * 0.5, 1e-15);
  EXPECT_NEAR(ScheduleFactor(cosine, 0.1, 100), 0.2, 1e-15);
}

}  // namespace
}  // namespace onnxtrain
