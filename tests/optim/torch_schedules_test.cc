// Schedules against PyTorch, as numbers and as graphs on both backends.
#include "optim/loop/lr_schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/optim/replay.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

struct Case {
  const char* name;  // in torch_schedules.py
  const char* schedule;
  double min_lr;
  bool maximize;
};

const Case kCases[] = {
    {"plain", "plateau:patience=2", 0, false},
    {"cooling", "plateau:factor=0.5,patience=1,cooldown=3,threshold=0.01", 0, false},
    {"rising", "plateau:factor=0.3,patience=0,threshold=0.05", 0, true},
    {"bounded", "plateau:factor=0.1,patience=0,threshold=0.5", 3e-3, false},
};

std::map<std::string, HostTensor> Recorded() {
  const std::string path = BinaryPath("torch_schedules.npz");
  const std::string command = StrCat("/usr/bin/python3 ", RepoPath("tests/optim/torch_schedules.py"), " '", path, "'");
  EXPECT_EQ(std::system(command.c_str()), 0) << "it needs Debian's python3-torch and python3-numpy";
  auto arrays = ReadNpz(path);
  EXPECT_TRUE(arrays.ok()) << arrays.status();
  return {arrays->begin(), arrays->end()};
}

TEST(Plateau, FollowsPyTorch) {
  const auto recorded = Recorded();
  const HostTensor& metrics = recorded.at("metrics");
  for (const Case& c : kCases) {
    ScheduleSpec spec = ParseSchedule(c.schedule).value();
    spec.min_lr = c.min_lr;
    Plateau plateau(spec, 0.1, c.maximize);
    const HostTensor& rates = recorded.at(c.name);
    EXPECT_LT(rates.At(rates.size() - 1), 0.1) << "the case shows nothing";
    for (int64_t i = 0; i < metrics.size(); ++i) {
      ASSERT_NEAR(0.1 * plateau.Step(metrics.At(i)), rates.At(i), 1e-15) << c.name << " evaluation " << i;
    }
  }
}

TEST(Schedules, FollowPyTorch) {
  const auto recorded = Recorded();
  for (const char* text :
       {"linear", "cosine", "cosine_restarts:period=10,growth=2", "polynomial:power=2", "step:size=30,gamma=0.5",
        "multistep:at=20/50,gamma=0.2", "exponential:gamma=0.97", "one_cycle"}) {
    ScheduleSpec spec = ParseSchedule(text).value();
    spec.total_steps = 100;
    spec.min_lr = spec.name == "cosine" ? 1e-3 : 0;
    const HostTensor& rates = recorded.at(spec.name);
    for (int64_t t = 0; t < rates.size(); ++t)
      EXPECT_NEAR(0.1 * ScheduleFactor(spec, 0.1, t), rates.At(t), 1e-13) << text << " update " << t;
  }
}

// 200 updates with each schedule on both backends, against the numbers.
TEST(Schedules, AreReplayedOnTheDevice) {
  constexpr double kRate = 0.05;
  for (const ScheduleRow& row : AllSchedules()) {
    ScheduleSpec spec = ParseSchedule(row.name == "multistep" ? "multistep:at=50/120" : std::string(row.name)).value();
    spec.total_steps = 200;
    if (!row.own_warmup) spec.warmup = 10;
    spec.min_lr = 1e-3;
    for (const char* backend : {"cpu", "torch"}) {
      for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
        const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 1e-5;
        Replay replay(backend, {dtype, {.rule = "sgd", .lr = kRate, .max_grad_norm = 0}, spec}, 0, {2}, {1, 2});
        if (row.name == "plateau") replay.Set(device_scalar::kPlateau, {1});
        double want = 1;
        for (int64_t t = 0; t < spec.total_steps; ++t) {
          const double gradient = std::sin(0.3 * static_cast<double>(t));
          replay.Step({gradient, 1});
          const double rate = kRate * ScheduleFactor(spec, kRate, t);
          want -= rate * gradient;
          ASSERT_NEAR(replay.Get(device_scalar::kRate).At(0), rate, tolerance * kRate)
              << row.name << " on " << backend << " update " << t;
          ASSERT_NEAR(replay.Param().At(0), want, tolerance) << row.name << " on " << backend << " update " << t;
        }
      }
    }
  }
}

// NaN counts as no improvement.
TEST(Plateau, FallsWhereTheMetricIsNone) {
  Plateau plateau(ParseSchedule("plateau:patience=1,factor=0.5").value(), 1, false);
  EXPECT_EQ(plateau.Step(1), 1);
  EXPECT_EQ(plateau.Step(std::nan("")), 1);
  EXPECT_EQ(plateau.Step(std::nan("")), 0.5);
}

TEST(Plateau, TheSlotScalesTheRate) {
  for (const char* backend : {"cpu", "torch"}) {
    Replay replay(
        backend,
        {DType::kFloat64, {.rule = "sgd", .lr = 0.5, .max_grad_norm = 0}, {.name = "plateau", .total_steps = 10}}, 0,
        {2}, {1, 2});
    replay.Set(device_scalar::kPlateau, {1});
    replay.Step({1, 1});
    replay.Set(device_scalar::kPlateau, {0.1});
    replay.Step({1, 1});
    EXPECT_DOUBLE_EQ(replay.Param().At(0), 1 - 0.5 - 0.05) << backend;
    EXPECT_DOUBLE_EQ(replay.Get(device_scalar::kRate).At(0), 0.05) << backend;
  }
}

}  // namespace
}  // namespace onnxtrain
