// Metrics for regressions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "optim/loop/metrics.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

// Sums over the samples.
Val SumByTarget(const MetricContext& c, Val values) { return ReduceSum(values, {c.batch_axis}, false); }

Val SampleCount(const MetricContext& c) {
  return c.y.b().Scalar(c.y.dtype(), static_cast<double>(c.y.dim(c.batch_axis)));
}

// Returns, by target, the sum of absolute errors, and the number of samples.
std::vector<Val> ErrorStats(const MetricContext& c) { return {SumByTarget(c, Abs(c.y - c.labels)), SampleCount(c)}; }

std::vector<Val> SquareStats(const MetricContext& c) {
  const Val d = c.y - c.labels;
  return {SumByTarget(c, d * d), SampleCount(c)};
}

std::vector<double> MeanByTarget(const MetricStats& s) {
  std::vector<double> means = s[0];
  for (double& x : means) x = s[1][0] > 0 ? x / s[1][0] : kUndefinedMetric;
  return means;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double MeanError(const MetricStats& s) { return Mean(MeanByTarget(s)); }
double RootMeanSquare(const MetricStats& s) { return std::sqrt(Mean(MeanByTarget(s))); }
std::vector<double> RootMeanSquareByTarget(const MetricStats& s) {
  std::vector<double> roots = MeanByTarget(s);
  for (double& x : roots) x = std::sqrt(x);
  return roots;
}

// Returns, by batch and target, squared errors, means of the labels and squared deviations from them; by batch,
// samples.
std::vector<Val> VarianceStats(const MetricContext& c) {
  const Val error = c.y - c.labels;
  const Val mean = ReduceMean(c.labels, {c.batch_axis}, true), deviation = c.labels - mean;
  return {SumByTarget(c, error * error), SumByTarget(c, mean), SumByTarget(c, deviation * deviation), SampleCount(c)};
}

// Returns 1 - errors / variance; combines the parts of the batches as in Chan, Golub & LeVeque (1979). A target without
// variance gets 1 if it is predicted exactly, else 0 (as in scikit-learn).
std::vector<double> DeterminationByTarget(const MetricStats& s) {
  const size_t batches = s[3].size(), targets = s[0].size() / std::max<size_t>(batches, 1);
  std::vector<double> values;
  for (size_t t = 0; t < targets; ++t) {
    double count = 0, mean = 0, squares = 0, errors = 0;
    for (size_t b = 0; b < batches; ++b) {
      const size_t at = b * targets + t;
      const double n = s[3][b], d = s[1][at] - mean;
      squares += s[2][at] + d * d * count * n / (count + n);
      mean += d * n / (count + n);
      count += n;
      errors += s[0][at];
    }
    values.push_back(squares > 0 ? 1 - errors / squares : errors == 0 ? 1 : 0);
  }
  return values;
}

double Determination(const MetricStats& s) { return s[3].empty() ? kUndefinedMetric : Mean(DeterminationByTarget(s)); }

}  // namespace

std::span<const MetricRow> ValueMetrics() {
  static const std::vector<MetricRow> rows = {
      {.name = "mae",
       .text = "mean absolute error",
       .values = true,
       .stats = ErrorStats,
       .value = MeanError,
       .by_target = MeanByTarget,
       .error_power = 1},
      {.name = "rmse",
       .text = "root of the mean squared error",
       .values = true,
       .stats = SquareStats,
       .value = RootMeanSquare,
       .by_target = RootMeanSquareByTarget,
       .error_power = 2},
      {.name = "r2",
       .text = "coefficient of determination R², the mean over the targets",
       .keep = true,
       .values = true,
       .stats = VarianceStats,
       .value = Determination,
       .by_target = DeterminationByTarget},
  };
  return rows;
}

}  // namespace onnxtrain
