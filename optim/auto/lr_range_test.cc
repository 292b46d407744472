#include "optim/auto/lr_range_test.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/str_format.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/json_writer.h"
#include "optim/telemetry/format.h"

namespace onnxtrain {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kMemory = 0.8;        // of the moving average
constexpr double kReach = 0.4;         // decades on each side of a point that its regression line is fitted to
constexpr size_t kStart = 10;          // points at rates that change nothing yet
constexpr int64_t kSkipsAtStart = 30;  // a dynamic loss scale is found first
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

// The loss before anything was learned, doubled, or as far above it as noise does not get.
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
  double slope = 0, level = 0;  // per decade; at the point
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
  // The first half of the fall may only be that of outputs that are far too large in a fresh model.
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

std::string ToJson(const RateTest& test) {
  using Json = nlohmann::ordered_json;
  Json json = {{"lr", nullptr}, {"why", test.why}, {"points", Json::array()}};
  if (test.lr > 0) json["lr"] = test.lr;
  for (const RatePoint& point : test.curve) json["points"].push_back({point.lr, point.loss, point.smooth});
  return WriteJson(json, 2) + "\n";
}

}  // namespace onnxtrain
