#include "optim/plateau.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "frontend/base/strings.h"
#include "frontend/data/npz.h"
#include "optim/lr_schedule.h"
#include "tests/optim/replay.h"

namespace onnxtrain {
namespace {

struct Case {
  const char* name;  // in torch_plateau.py
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

TEST(Plateau, FollowsPyTorch) {
  const std::string path = std::string(ONNXTRAIN_BINARY_DIR) + "/torch_plateau.npz";
  const std::string command = StrCat("/usr/bin/python3 ", ONNXTRAIN_SOURCE_DIR, "/tests/optim/torch_plateau.py '", path, "'");
  ASSERT_EQ(std::system(command.c_str()), 0) << "it needs Debian's python3-torch and python3-numpy";
  const auto arrays = ReadNpz(path);
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const std::map<std::string, HostTensor> recorded(arrays->begin(), arrays->end());
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

// A metric that is not a number is no better than the best.
TEST(Plateau, FallsWhereTheMetricIsNone) {
  Plateau plateau(ParseSchedule("plateau:patience=1,factor=0.5").value(), 1, false);
  EXPECT_EQ(plateau.Step(1), 1);
  EXPECT_EQ(plateau.Step(std::nan("")), 1);
  EXPECT_EQ(plateau.Step(std::nan("")), 0.5);
}

TEST(Plateau, TheSlotScalesTheRate) {
  for (const char* backend : {"cpu", "torch"}) {
    Replay replay(backend, {DType::kFloat64, {.rule = "sgd", .lr = 0.5, .max_grad_norm = 0}, {.name = "plateau", .total_steps = 10}}, 0, {2}, {1, 2});
    replay.Set(slot::kPlateau, {1});
    replay.Step({1, 1});
    replay.Set(slot::kPlateau, {0.1});
    replay.Step({1, 1});
    EXPECT_DOUBLE_EQ(replay.Param().At(0), 1 - 0.5 - 0.05) << backend;
    EXPECT_DOUBLE_EQ(replay.Get(slot::kRate).At(0), 0.05) << backend;
  }
}

}  // namespace
}  // namespace onnxtrain
