// Dynamic loss scaling against the rule that PyTorch documents for torch._amp_update_scale_, written out in float64.
// (PyTorch 1.13 implements it for GPUs only.)
#include "optim/step/gradient_scaling.h"

#include <cmath>
#include <limits>
#include <set>

#include "tests/optim/replay.h"

namespace onnxtrain {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

// growth 2, backoff 0.5; a scale that would not be a finite float32 does not grow.
struct Scaler {
  double scale;
  int64_t interval, tracker = 0;

  void Update(bool found_inf) {
    if (found_inf) {
      scale *= 0.5;
      tracker = 0;
      return;
    }
    if (++tracker < interval) return;
    if (std::isfinite(static_cast<float>(scale * 2))) scale *= 2;
    tracker = 0;
  }
};

UpdateSpec Scaled(LossScaleSpec scale) {
  return {.optimizer = {.rule = "sgd", .lr = 0.5, .momentum = 0.5, .max_grad_norm = 1.5},
          .schedule = {.name = "linear", .total_steps = 200},
          .loss_scale = scale};
}

void Check(const char* backend, double initial, int64_t interval, const std::set<int>& bad) {
  const Vector start = {1, -2, 3};
  Replay scaled(backend, Scaled({.initial = initial, .interval = interval}), 0.01, {3}, start);
  UpdateSpec plain_spec = Scaled({});
  plain_spec.loss_scale.reset();
  Replay plain(backend, plain_spec, 0.01, {3}, start);  // does not see skipped gradients
  scaled.Set(device_scalar::kLossScale, {initial});
  Scaler want{initial, interval};
  double in_a_row = 0, applied = 0;
  for (int step = 0; step < 60; ++step) {
    const bool found = bad.contains(step);
    Vector gradient = {std::sin(step), std::cos(step), 0.25 * std::cos(3 * step)}, larger = gradient;
    for (double& g : larger) g *= want.scale;
    if (found) larger[step % 3] = step % 2 == 0 ? kInf : kNan;
    scaled.Step(larger);
    if (!found) plain.Step(gradient);
    want.Update(found);
    in_a_row = found ? in_a_row + 1 : 0;
    applied += found ? 0 : 1;
    ASSERT_EQ(scaled.Get(device_scalar::kLossScale).At(0), want.scale) << backend << " step " << step;
    ASSERT_EQ(scaled.Get(device_scalar::kScaleApplied).At(0), static_cast<double>(want.tracker)) << step;
    ASSERT_EQ(scaled.Get(device_scalar::kSkippedInARow).At(0), in_a_row) << step;
    ASSERT_EQ(scaled.Get(device_scalar::kApplied).At(0), applied) << step;
    for (int64_t i = 0; i < 3; ++i)
      ASSERT_NEAR(scaled.Param().At(i), plain.Param().At(i), 2e-6) << backend << " step " << step;
    if (found) continue;
    // The schedule does not count skipped updates, and the norm is unscaled.
    ASSERT_EQ(scaled.Get(device_scalar::kRate).At(0), plain.Get(device_scalar::kRate).At(0)) << step;
    ASSERT_NEAR(scaled.Get(device_scalar::kNorm).At(0), plain.Get(device_scalar::kNorm).At(0), 1e-5) << step;
  }
}

TEST(LossScale, TrajectoryIsGradScalers) {
  for (const char* backend : {"cpu", "torch"}) {
    Check(backend, 65536, 5, {});
    Check(backend, 65536, 7, {0, 1, 2, 9, 10, 23, 37, 38, 59});
    Check(backend, 4, 1000, {3, 4, 5, 6, 7, 30});
    Check(backend, std::ldexp(1, 127), 2, {});  // the largest finite scale
  }
}

TEST(LossScale, OneThatIsGivenStays) {
  Replay replay("cpu", Scaled({.initial = 1024, .dynamic = false}), 0, {1}, {1});
  replay.Set(device_scalar::kLossScale, {1024});
  replay.Step({kInf});
  replay.Step({512});
  EXPECT_EQ(replay.Get(device_scalar::kLossScale).At(0), 1024);
  EXPECT_EQ(replay.Get(device_scalar::kSkipped).At(0), 1);
  EXPECT_EQ(replay.Get(device_scalar::kNorm).At(0), 0.5);
}

}  // namespace
}  // namespace onnxtrain
