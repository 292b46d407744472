#include "optim/loop/lr_range_test.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/str_format.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kMemory = 0.8;        // decay of the moving average
constexpr double kReach = 0.4;         // decades on each side of a point in its regression
constexpr size_t kStart = 10;          // points at rates too small to change anything
constexpr int64_t kSkipsAtStart = 30;  // the search for a dynamic loss scale skips updates
constexpr int64_t kSkipsThatDiverge = 3;

double Mean(std::span<const RatePoint> points) {
  double sum = 0;
  for (const RatePoint& point : points) sum += point.loss;
  return sum / static_cast<double>(points.size());
}

double Deviation(std::span<const RatePoint> points) {
  const double mean = Mean(points);
  double sum = 0;
  for (const RatePoint& point : points) sum += (point.loss - mean) * (point.loss - mean);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, points.size() - 1)));
}

std::span<const RatePoint> StartOf(const std::vector<RatePoint>& curve) {
  return {curve.data(), std::min(curve.size(), kStart)};
}

// Returns true if the loss has at least doubled since the start and has risen by more than its noise.
bool HasDiverged(const std::vector<RatePoint>& curve) {
  if (curve.size() <= kStart) return false;
  const auto start = StartOf(curve);
  const double level = Mean(start);
  return curve.back().smooth > level + std::max(std::abs(level), 4 * Deviation(start));
}

class Ramp {
 public:
  Ramp(const RateRange& range, const RateStep& step) : range_(range), step_(step) {}

  absl::StatusOr<RateTest> Run() {
    for (int64_t i = 0; i < range_.updates && test_.bound == 0; ++i) RETURN_IF_ERROR(Measure(RateAt(i)));
    SuggestRate(&test_);
    return std::move(test_);
  }

 private:
  double RateAt(int64_t i) const {
    const double part = static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, range_.updates - 1));
    return range_.min * std::pow(range_.max / range_.min, part);
  }

  absl::Status Measure(double lr) {
    const int64_t tries = test_.curve.empty() ? kSkipsAtStart : kSkipsThatDiverge;
    double loss = kNone;
    for (int64_t i = 0; i < tries && !std::isfinite(loss); ++i) {
      RETURN_IF_ERROR(CheckCancelled());
      ASSIGN_OR_RETURN(loss, step_(lr));
    }
    if (std::isfinite(loss)) Add(lr, loss);
    if (!std::isfinite(loss) || HasDiverged(test_.curve)) test_.bound = lr / 10;
    return absl::OkStatus();
  }

  void Add(double lr, double loss) {
    sum_ = kMemory * sum_ + loss;
    weight_ = kMemory * weight_ + 1;
    test_.curve.push_back({lr, loss, sum_ / weight_});
  }

  const RateRange& range_;
  const RateStep& step_;
  RateTest test_;
  double sum_ = 0, weight_ = 0;
};

// The regression line around one point.
struct LocalFit {
  double slope = 0, level = 0;  // slope per decade; level at the point
  double noise = 0;             // standard error of the level
};

LocalFit FitAround(const std::vector<RatePoint>& curve, size_t at) {
  double n = 0, x_sum = 0, y_sum = 0, xx = 0, xy = 0, yy = 0;
  for (const RatePoint& point : curve) {
    const double x = std::log10(point.lr / curve[at].lr), y = point.loss;
    if (std::abs(x) > kReach) continue;
    ++n, x_sum += x, y_sum += y, xx += x * x, xy += x * y, yy += y * y;
  }
  const double x_var = xx - x_sum * x_sum / n, cov = xy - x_sum * y_sum / n, y_var = yy - y_sum * y_sum / n;
  const double slope = x_var > 0 ? cov / x_var : 0;
  const double rest = std::max(0.0, y_var - slope * cov) / std::max(1.0, n - 2);
  return {.slope = slope, .level = (y_sum - slope * x_sum) / n, .noise = std::sqrt(rest / n)};
}

void TellNothing(RateTest* test, const std::string& what) {
  test->why = StrCat("the range test tells nothing: ", what);
}

std::string DescribeRange(const RateTest& test) {
  return StrCat("rates from ", FormatNumber(test.curve.front().lr), " to ", FormatNumber(test.curve.back().lr),
                test.bound > 0 ? ", where it diverges" : "");
}

}  // namespace

double RoundRate(double x) {
  const double unit = std::pow(10, std::floor(std::log10(x)) - 1);
  return *ParseNumber(absl::StrFormat("%.3g", std::floor(x / unit + 1e-9) * unit));
}

void SuggestRate(RateTest* test) {
  const std::vector<RatePoint>& curve = test->curve;
  if (curve.size() < 2 * kStart)
    return TellNothing(test, curve.empty() ? "the loss is not finite at the lowest rate"
                                           : StrCat("the loss diverges after ", curve.size(), " updates, at ",
                                                    FormatNumber(curve.back().lr)));
  std::vector<LocalFit> fits;
  for (size_t i = 0; i < curve.size(); ++i) fits.push_back(FitAround(curve, i));
  const auto least = std::ranges::min_element(fits, {}, &LocalFit::level);
  const auto start = StartOf(curve);
  const double fall = Mean(start) - least->level;
  // The first half of the decrease may only correct outputs that are far too large in a new model.
  const auto half =
      std::find_if(fits.begin(), least, [&](const LocalFit& fit) { return fit.level <= least->level + fall / 2; });
  const auto steepest = std::ranges::min_element(half, least + 1, {}, &LocalFit::slope);
  const double noise = std::hypot(Deviation(start) / std::sqrt(start.size()), least->noise);
  if (steepest->slope >= 0 || fall <= 3 * noise || fall <= 0.01 * std::abs(Mean(start)))
    return TellNothing(test, StrCat("the loss falls by no more than its noise at ", DescribeRange(*test)));
  const double at_steepest = curve[steepest - fits.begin()].lr, at_least = curve[least - fits.begin()].lr;
  double lr = std::min(at_steepest, at_least / 3);
  if (test->bound > 0) lr = std::min(lr, test->bound);
  test->lr = RoundRate(lr);
  test->why = StrCat("by a range test: of ", DescribeRange(*test), ", the loss falls fastest at ",
                     FormatNumber(at_steepest), " and is least at ", FormatNumber(at_least));
}

absl::StatusOr<RateTest> RunRateTest(const RateRange& range, const RateStep& step) { return Ramp(range, step).Run(); }

absl::StatusOr<RateTest> TestSessionRates(Session& session, const TrainData& train, const TrainOptions& options,
                                          double base, const RateRange& range) {
  LoaderOptions load = MakeLoaderOptions(options);
  load.epochs = -1;
  ASSIGN_OR_RETURN(auto loader, Loader::Create(train.dataset, train.specs, load));
  GlobalBatch global_batch(FeedNames(train.specs));
  return RunRateTest(range, [&](double lr) -> absl::StatusOr<double> {
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    SetTensors(*batch, &global_batch);
    RETURN_IF_ERROR(session.SetPlateau(lr / base));
    RETURN_IF_ERROR(session.Step(global_batch));
    ASSIGN_OR_RETURN(const StepReport report, session.Report());
    return report.skipped > 0 ? kNone : report.loss;
  });
}

namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Returns the standard error of a median, from the median absolute deviation of normally distributed values.
double MedianError(const std::vector<double>& values) {
  const double median = Median(values);
  std::vector<double> deviations;
  for (double value : values) deviations.push_back(std::abs(value - median));
  return 1.25 * 1.48 * Median(deviations) / std::sqrt(static_cast<double>(values.size()));
}

// Copies batches, because a loader reuses its memory.
absl::StatusOr<std::vector<GlobalBatch>> TakeBatches(Loader& loader, const TrainData& train, size_t count) {
  std::vector<GlobalBatch> batches;
  while (batches.size() < count) {
    ASSIGN_OR_RETURN(const Batch* batch, loader.Next());
    GlobalBatch& taken = batches.emplace_back(FeedNames(train.specs));
    SetTensors(*batch, &taken);
    for (size_t i = 0; i < taken.names()->size(); ++i) taken.Set(i, taken.tensor(i).Clone());
  }
  return batches;
}

absl::StatusOr<std::vector<double>> MeasureLosses(Session& session, const std::vector<GlobalBatch>& batches) {
  std::vector<double> losses;
  for (const GlobalBatch& batch : batches) {
    ASSIGN_OR_RETURN(losses.emplace_back(), session.TrainingLoss(batch));
  }
  return losses;
}

}  // namespace

double RateTrial::median_fall() const {
  return falls.empty() ? -std::numeric_limits<double>::infinity() : Median(falls);
}

std::vector<double> TrialRates(const RateTest& test, double usual) {
  const double middle = test.lr > 0 ? test.lr : usual, step = test.lr > 0 ? 3 : 4;
  std::vector<double> rates;
  for (const int power : {-2, -1, 0, 1, 2}) rates.push_back(middle * std::pow(step, power));
  return rates;
}

int64_t TrialUpdates(int64_t total, bool asked) {
  const int64_t share = total / (asked ? 4 : 20);
  return share < kFewestTrialUpdates ? 0 : std::min<int64_t>(share, 400);
}

absl::StatusOr<RateTrial> TrySessionRate(Session& session, const TrainData& train, const TrainOptions& options,
                                         double base, double lr, int64_t updates) {
  constexpr size_t kHeldOut = 8;
  constexpr int64_t kMeasures = 5;  // measurements in the second half of the updates
  LoaderOptions load = MakeLoaderOptions(options);
  load.epochs = -1;
  ASSIGN_OR_RETURN(auto loader, Loader::Create(train.dataset, train.specs, load));
  ASSIGN_OR_RETURN(const std::vector<GlobalBatch> held_out, TakeBatches(*loader, train, kHeldOut));
  RETURN_IF_ERROR(session.SetPlateau(lr / base));
  ASSIGN_OR_RETURN(const std::vector<double> before, MeasureLosses(session, held_out));
  GlobalBatch global_batch(FeedNames(train.specs));
  RateTrial trial{.lr = lr, .falls = std::vector<double>(kHeldOut)};
  for (int64_t i = 1; i <= updates; ++i) {
    RETURN_IF_ERROR(CheckCancelled());
    ASSIGN_OR_RETURN(const Batch* batch, loader->Next());
    SetTensors(*batch, &global_batch);
    RETURN_IF_ERROR(session.Step(global_batch));
    // A rate that is too high makes the loss fluctuate between updates.
    const int64_t left = updates - i, apart = updates / (2 * kMeasures);
    if (left % apart != 0 || left / apart >= kMeasures) continue;
    ASSIGN_OR_RETURN(const std::vector<double> after, MeasureLosses(session, held_out));
    for (size_t k = 0; k < kHeldOut; ++k) trial.falls[k] += (before[k] - after[k]) / kMeasures;
  }
  if (!std::ranges::all_of(trial.falls, [](double fall) { return std::isfinite(fall); })) trial.falls.clear();
  return trial;
}

void SuggestTrialRate(int64_t updates, RateTest* test) {
  constexpr double kNearly = 0.95;
  const bool guessed = std::exchange(test->lr, 0) > 0;
  const auto best = std::ranges::max_element(test->trials, {}, &RateTrial::median_fall);
  if (best == test->trials.end() || best->falls.empty() || best->median_fall() <= 3 * MedianError(best->falls)) {
    if (guessed) TellNothing(test, StrCat("no trial of ", updates, " updates lowers the loss by more than its noise"));
    return;
  }
  const double enough = kNearly * best->median_fall();
  const auto chosen = std::ranges::find_if(test->trials, [&](const RateTrial& t) { return t.median_fall() >= enough; });
  test->lr = RoundRate(chosen->lr);
  test->why = StrCat("by trials of ", updates, " updates at ", test->trials.size(), " rates from ",
                     FormatNumber(test->trials.front().lr), " to ", FormatNumber(test->trials.back().lr),
                     ", of which this one lowers the loss of held-out batches by ", FormatNumber(chosen->median_fall()),
                     " and ", FormatNumber(best->lr), " by most, ", FormatNumber(best->median_fall()));
}

std::string ToJson(const RateTest& test) {
  using Json = nlohmann::ordered_json;
  Json json = {{"lr", nullptr}, {"why", test.why}, {"points", Json::array()}};
  if (test.lr > 0) json["lr"] = test.lr;
  for (const RatePoint& point : test.curve) json["points"].push_back({point.lr, point.loss, point.smooth});
  for (const RateTrial& trial : test.trials)
    json["trials"].push_back({trial.lr, trial.falls.empty() ? Json() : Json(trial.median_fall())});
  return WriteJson(json, 2) + "\n";
}

}  // namespace onnxtrain
