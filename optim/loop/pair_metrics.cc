// Metrics of losses that compare a chosen with a rejected answer.
#include "optim/loop/metrics.h"

namespace onnxtrain {
namespace {

// Sums of values [N], and N.
std::vector<Val> Totals(Val values) {
  Builder& b = values.b();
  return {ReduceSum(values, {}, false), b.Scalar(values.dtype(), static_cast<double>(values.dim(0)))};
}

double Mean(const MetricStats& s) { return s[1].empty() || s[1][0] == 0 ? kUndefinedMetric : s[0][0] / s[1][0]; }

// Returns the rewards of both answers.
PairRewards Rewards(const MetricContext& c) {
  const double beta = c.loss->Option("beta", 1);
  const PairRewards rewards = GetPairRewards(*c.function, ScorePairs(*c.loss));
  return {rewards.chosen * beta, rewards.rejected * beta};
}

std::vector<Val> MarginStats(const MetricContext& c) {
  const PairRewards rewards = Rewards(c);
  return Totals(rewards.chosen - rewards.rejected);
}
std::vector<Val> AccuracyStats(const MetricContext& c) {
  const PairRewards rewards = Rewards(c);
  return Totals(Cast(Greater(rewards.chosen, rewards.rejected), c.y.dtype()));
}
std::vector<Val> ChosenRewardStats(const MetricContext& c) { return Totals(Rewards(c).chosen); }
std::vector<Val> RejectedRewardStats(const MetricContext& c) { return Totals(Rewards(c).rejected); }
std::vector<Val> ChosenStats(const MetricContext& c) { return Totals(ScorePairs(*c.loss).chosen); }
std::vector<Val> RejectedStats(const MetricContext& c) { return Totals(ScorePairs(*c.loss).rejected); }

std::vector<Val> LogProbabilityStats(const MetricContext& c) {
  const PairScores s = ScorePairs(*c.loss);
  const int64_t n = s.chosen.dim(0);
  return {Concat({Reshape(s.chosen, {n, 1}), Reshape(s.rejected, {n, 1})}, 1)};
}

double Undefined(const MetricStats&) { return kUndefinedMetric; }

}  // namespace

std::span<const MetricRow> PairMetrics() {
  static const std::vector<MetricRow> rows = {
      {.name = "reward_accuracy",
       .text = "share of the pairs whose chosen answer has the higher reward",
       .pairs = true,
       .stats = AccuracyStats,
       .value = Mean},
      {.name = "reward_margin",
       .text = "reward of the chosen answer minus that of the rejected one",
       .pairs = true,
       .stats = MarginStats,
       .value = Mean},
      {.name = "chosen_reward", .text = "of a pair", .pairs = true, .stats = ChosenRewardStats, .value = Mean},
      {.name = "rejected_reward", .text = "of a pair", .pairs = true, .stats = RejectedRewardStats, .value = Mean},
      {.name = "chosen_logp",
       .text = "log-probability of an answer",
       .pairs = true,
       .stats = ChosenStats,
       .value = Mean},
      {.name = "rejected_logp",
       .text = "log-probability of an answer",
       .pairs = true,
       .stats = RejectedStats,
       .value = Mean},
      {.name = kLogProbabilities,
       .text = "log-probabilities of both answers of each sample",
       .keep = true,
       .pairs = true,
       .stats = LogProbabilityStats,
       .value = Undefined},
  };
  return rows;
}

}  // namespace onnxtrain
