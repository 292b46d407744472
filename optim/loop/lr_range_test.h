// Learning rate range test (Smith, Cyclical Learning Rates, 2017): updates at rates that rise exponentially, of which
// the one where the loss falls fastest is a first guess; then trials of more updates at single rates around it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct RateRange {
  double min = 1e-6, max = 10;
  int64_t updates = 100;
};

struct RatePoint {
  double lr = 0;
  double loss = 0;    // of the batch of this update, before it
  double smooth = 0;  // exponential moving average of the losses so far
};

// Updates at one rate, from the weights that the run begins with.
struct RateTrial {
  double lr = 0;
  std::vector<double> falls;  // of the losses of held-out batches, at its end; empty: a loss was not finite

  double median_fall() const;  // minus infinity where there is none
};

struct RateTest {
  std::vector<RatePoint> curve;
  std::vector<RateTrial> trials;  // by rising rate
  double lr = 0;                  // suggested, as RoundRate has it; 0: neither the curve nor a trial tells anything
  double bound = 0;               // a tenth of the rate where the loss diverged; 0: it did not
  std::string why;                // of the suggestion, or why there is none
};

// Rounds down to two significant digits.
double RoundRate(double lr);

// Runs one update at a rate and returns the loss before it; NaN: the update was skipped, or the loss is not finite.
using RateStep = std::function<absl::StatusOr<double>(double lr)>;

// Raises the rate from range.min to range.max, or until the loss has doubled or is not finite, and suggests a rate.
absl::StatusOr<RateTest> RunRateTest(const RateRange& range, const RateStep& step);

// Sets lr and why from curve and bound. The slope of the loss over log(lr) is that of a regression line through the
// points within 0.4 decades, and counts from where half of the fall is done. The suggestion is at most `bound` and a
// third of the rate of the least loss. There is none where the loss falls by less than its noise.
void SuggestRate(RateTest* test);

// Trains a temporary session, which the caller discards, on the batches of `options`, repeated as often as needed. The
// session has the schedule kRateTestSchedule and an optimizer with learning rate `base`.
absl::StatusOr<RateTest> TestSessionRates(Session& session, const TrainData& train, const TrainOptions& options,
                                          double base, const RateRange& range);
inline constexpr char kRateTestSchedule[] = "plateau";  // its factor is set from outside

// Rates for trials: around the one that the curve suggests, or, where it tells nothing, farther around the usual one.
std::vector<double> TrialRates(const RateTest& test, double usual);
inline constexpr int64_t kFewestTrialUpdates = 20;
// The number of updates that each takes in a run of `total`: more where the user asked for the test, at most a quarter
// of the run; 0 where that is too few to tell rates apart.
int64_t TrialUpdates(int64_t total, bool asked);

// Trains a temporary session as TestSessionRates does, for so many updates at one rate, on other batches than those
// that the change of the loss is measured on, as far as there are enough.
absl::StatusOr<RateTrial> TrySessionRate(Session& session, const TrainData& train, const TrainOptions& options,
                                         double base, double lr, int64_t updates);

// Sets lr and why from the trials: the lowest rate whose median fall is nearly the greatest one. There is none where
// the greatest fall is within its noise: lr is 0 then, whatever the curve suggests.
void SuggestTrialRate(int64_t updates, RateTest* test);

// The test and its result as a JSON object: lr (null: none), why, points [[lr, loss, smooth], …] and, if there were
// any, trials [[lr, fall], …].
std::string ToJson(const RateTest& test);

}  // namespace onnxtrain
