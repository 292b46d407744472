#include "optim/loop/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "frontend/ops/host_eval.h"

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

ScheduleSpec Spec(const std::string& text, int64_t total, double warmup = 0, double min_lr = 0) {
  auto spec = ParseSchedule(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  spec->total_steps = total;
  spec->warmup = warmup;
  spec->min_lr = min_lr;
  return *spec;
}

TEST(LrSchedule, GraphAndFunctionAgree) {
  std::vector<std::string> texts = {"multistep:at=3/20/21", "cosine_restarts:period=7,growth=2",
                                    "step:size=4,gamma=0.3", "polynomial:power=2.5"};
  for (const ScheduleRow& row : AllSchedules()) {
    if (row.name != "multistep") texts.emplace_back(row.name);
  }
  for (const std::string& text : texts) {
    for (double warmup : {0.0, 0.1, 7.0}) {
      for (double min_lr : {0.0, 0.01}) {
        const ScheduleSpec spec = Spec(text, 50, warmup, min_lr);
        for (int64_t step : {0, 1, 4, 5, 6, 7, 8, 14, 21, 25, 48, 49, 50, 80}) {
          EXPECT_NEAR(OnGraph(spec, 0.1, step), ScheduleFactor(spec, 0.1, step), 1e-14)
              << text << " " << warmup << " " << step;
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

// The definitions of torch.optim.lr_scheduler in double.
TEST(LrSchedule, FollowsTheDefinitions) {
  constexpr double kPi = std::numbers::pi;
  struct Row {
    std::string text;
    std::function<double(int)> expected;
  };
  const auto anneal = [](double from, double to, double pct) {
    return to + (from - to) / 2 * (1 + std::cos(kPi * pct));
  };
  const auto restarts = [&](int t) {
    int begin = 0, length = 10;
    while (t >= begin + length) begin += length, length *= 2;
    return (1 + std::cos(kPi * (t - begin) / length)) / 2;
  };
  const auto one_cycle = [&](int t) {
    const double top = 0.3 * 100 - 1, end = 99;
    return t < top ? anneal(0.04, 1, t / top) : anneal(1, 0.04 / 1e4, (t - top) / (end - top));
  };
  const Row rows[] = {
      {"cosine_restarts:period=10", [&](int t) { return (1 + std::cos(kPi * (t % 10) / 10)) / 2; }},
      {"cosine_restarts:period=10,growth=2", restarts},
      {"polynomial:power=2", [](int t) { return std::pow(1 - t / 100.0, 2); }},
      {"step:size=30,gamma=0.5", [](int t) { return std::pow(0.5, t / 30); }},
      {"multistep:at=20/50,gamma=0.2", [](int t) { return t < 20   ? 1
                                                          : t < 50 ? 0.2
                                                                   : 0.04; }},
      {"exponential:gamma=0.97", [](int t) { return std::pow(0.97, t); }},
      {"inverse_sqrt:scale=4", [](int t) { return 1 / std::sqrt(1 + t / 4.0); }},
      {"one_cycle", one_cycle},
      {"wsd:decay=0.25", [](int t) { return t < 75 ? 1 : 1 - (t - 75) / 25.0; }},
      {"wsd_cosine:decay=0.25", [&](int t) { return t < 75 ? 1 : anneal(1, 0, (t - 75) / 25.0); }},
      {"wsd_sqrt:decay=0.25", [](int t) { return t < 75 ? 1 : 1 - std::sqrt((t - 75) / 25.0); }},
  };
  for (const Row& row : rows) {
    for (int t = 0; t < 100; ++t) {
      EXPECT_NEAR(ScheduleFactor(Spec(row.text, 100), 1, t), row.expected(t), 1e-12) << row.text << " " << t;
    }
  }
}

TEST(LrSchedule, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> rows[] = {
      {"cosin", "no schedule 'cosin'"},  {"step:siz=3", "no option 'siz'; it has size, gamma"},
      {"linear:gamma=1", "it has none"}, {"step:gamma=2", "expected 0 to 1, got '2'"},
      {"step:size=x", "got 'x'"},        {"step:size=3/4", "expected one number"},
      {"multistep", "at=1000/2000"},     {"multistep:at=5/5", "ascending"},
      {"step:size", "size: expected"},   {"step:size=nan", "got 'nan'"},
  };
  for (const auto& [text, part] : rows) {
    const auto spec = ParseSchedule(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_NE(std::string(spec.status().message()).find(part), std::string::npos) << text << ": " << spec.status();
  }
}

}  // namespace
}  // namespace onnxtrain
