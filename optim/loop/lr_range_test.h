// Runs a learning rate range test (Smith, Cyclical Learning Rates, 2017): updates at exponentially rising rates suggest
// the rate at which the loss falls fastest; longer trials at single rates around it refine the suggestion.
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
  double loss = 0;    // of this update's batch, before the update
  double smooth = 0;  // exponential moving average of the losses so far
};

// The result of several updates at one rate, from the initial weights of the run.
struct RateTrial {
  double lr = 0;
  std::vector<double> falls;  // decreases of the losses of held-out batches, at the end; empty: a loss was not finite

  double median_fall() const;  // minus infinity if `falls` is empty
};

struct RateTest {
  std::vector<RatePoint> curve;
  std::vector<RateTrial> trials;  // by rising rate
  double lr = 0;                  // suggested, rounded by RoundRate; 0: curve and trials are inconclusive
  double bound = 0;               // a tenth of the rate at which the loss diverged; 0: it did not
  std::string why;                // reason for the suggestion, or for its absence
};

// Rounds down to two significant digits.
double RoundRate(double lr);

// Runs one update at a rate and returns the loss before it; NaN: the update was skipped, or the loss is not finite.
using RateStep = std::function<absl::StatusOr<double>(double lr)>;

// Raises the rate from range.min to range.max, or until the loss has doubled or is not finite, and suggests a rate.
absl::StatusOr<RateTest> RunRateTest(const RateRange& range, const RateStep& step);

// Sets lr and why from curve and bound. The slope of the loss over log(lr) is that of a regression line through the
// points within 0.4 decades; slopes count after half of the total decrease. The suggestion is at most `bound` and at
// most a third of the rate with the lowest loss. There is none if the loss decreases by less than its noise.
void SuggestRate(RateTest* test);

// Runs the test on a temporary session, which the caller discards, with the batches of `options`, repeated as needed.
// The session must have the schedule kRateTestSchedule and an optimizer with learning rate `base`.
absl::StatusOr<RateTest> TestSessionRates(Session& session, const TrainData& train, const TrainOptions& options,
                                          double base, const RateRange& range);
inline constexpr char kRateTestSchedule[] = "plateau";  // its factor is set by the host

// Returns the rates for trials: around the suggestion of the curve, or, without one, in a wider range around `usual`.
std::vector<double> TrialRates(const RateTest& test, double usual);
inline constexpr int64_t kFewestTrialUpdates = 20;
// Returns the number of updates of each trial in a run of `total` updates: more if the user asked for the test, at most
// a quarter of the run; 0 if that is too few to compare rates.
int64_t TrialUpdates(int64_t total, bool asked);

// Trains a temporary session as in TestSessionRates, for `updates` updates at one rate. The change of the loss is
// measured on other batches if there are enough.
absl::StatusOr<RateTrial> TrySessionRate(Session& session, const TrainData& train, const TrainOptions& options,
                                         double base, double lr, int64_t updates);

// Sets lr and why from the trials: the lowest rate whose median decrease is nearly the greatest. If the greatest
// decrease is within its noise, sets lr to 0, whatever the curve suggests.
void SuggestTrialRate(int64_t updates, RateTest* test);

// Formats the test as a JSON object: lr (null: none), why, points [[lr, loss, smooth], …] and, if there are any, trials
// [[lr, fall], …].
std::string ToJson(const RateTest& test);

}  // namespace onnxtrain
