#include "frontend/data/load/loader.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

// A loader whose threads make `each` batches/s, up to `most` in all, before a step of `step` seconds. Returns the
// threads after 2000 batches.
int Climb(int max_workers, double each, double most, double step) {
  WorkerCountTuner climber(1, max_workers);
  int workers = 1;
  double now = 0, waited = 0;
  for (int batch = 0; batch < 2000; ++batch) {
    const double period = std::max(step, 1 / std::min(most, workers * each));
    now += period;
    waited += period - step;
    workers = climber.Observe(now, waited);
  }
  return workers;
}

TEST(WorkerCountTuner, StopsWhereTheStepNoLongerWaits) {
  EXPECT_EQ(Climb(8, 10, 1e9, 0.0999), 1);
  EXPECT_EQ(Climb(8, 10, 1e9, 0.03), 4);
  EXPECT_EQ(Climb(3, 10, 1e9, 0.03), 3) << "the limit";
}

TEST(WorkerCountTuner, TakesBackAThreadThatDoesNotHelp) {
  EXPECT_EQ(Climb(8, 10, 20, 0.01), 2) << "20 batches/s is all that the disk gives";
  EXPECT_EQ(Climb(8, 10, 10, 0.01), 1);
}

}  // namespace
}  // namespace onnxtrain
