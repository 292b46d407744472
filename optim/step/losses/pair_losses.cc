// Losses of pairs of answers, for preference training. dpo: Rafailov et al., Direct Preference Optimization (2023),
// with the label smoothing of Mitchell (2023). ipo: Azar et al., A General Theoretical Paradigm (2023), of averages
// over tokens. simpo: Meng et al. (2024). orpo: Hong et al. (2024).
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {

namespace {

Val Softplus(Val x) { return x.b().Op("Softplus", {x}); }

Val Column(Val x, int64_t c) { return Reshape(Slice(x, 1, c, 1), {x.dim(0)}); }

}  // namespace

PairScores ScorePairs(const LossContext& c) {
  const int64_t n = c.labels.dim(0), tokens = NumElements(c.labels.shape()) / n;
  const Val labels = Concat({c.labels, c.rejected}, 0);
  const ClassPair pair = AlignClasses(c.y, labels);
  const Val losses = c.y.b().Ops("CrossEntropy", {pair.scores, pair.labels},
                                 {{"ignore_index", c.ignore_index}, {"label_smoothing", 0.0}})[0];
  const Val scores = -ReduceSum(Reshape(losses, {2 * n, tokens}), {1}, false);
  const Val counted =
      Not(Equal(Reshape(labels, {2 * n, tokens}), c.y.b().Scalar(DType::kInt64, static_cast<double>(c.ignore_index))));
  const Val counts = Max(ReduceSum(Cast(counted, c.y.dtype()), {1}, false), 1.0);
  PairScores s{.chosen = Slice(scores, 0, 0, n),
               .rejected = Slice(scores, 0, n, n),
               .chosen_tokens = Slice(counts, 0, 0, n),
               .rejected_tokens = Slice(counts, 0, n, n)};
  if (!c.reference.valid()) return s;
  s.chosen_ratio = s.chosen - Column(c.reference, 0);
  s.rejected_ratio = s.rejected - Column(c.reference, 1);
  return s;
}

PairRewards GetPairRewards(const LossFunction& loss, const PairScores& scores) {
  if (!loss.reference) return {scores.chosen_mean(), scores.rejected_mean()};
  return {scores.chosen_ratio, scores.rejected_ratio};
}

namespace {

Val CountOrdered(Val chosen, Val rejected) {
  return ReduceSum(Cast(Greater(chosen, rejected), chosen.dtype()), {}, false);
}

LossParts Dpo(const LossContext& c) {
  const PairScores s = ScorePairs(c);
  const double smoothing = c.Option("label_smoothing", 0);
  const Val margin = (s.chosen_ratio - s.rejected_ratio) * c.Option("beta", 0.1);
  Val loss = Softplus(-margin);
  if (smoothing > 0) loss = loss * (1 - smoothing) + Softplus(margin) * smoothing;
  return {loss, CountOrdered(s.chosen_ratio, s.rejected_ratio)};
}

LossParts Ipo(const LossContext& c) {
  const PairScores s = ScorePairs(c);
  const Val d =
      s.chosen_ratio / s.chosen_tokens - s.rejected_ratio / s.rejected_tokens - 1 / (2 * c.Option("beta", 0.1));
  return {d * d, CountOrdered(s.chosen_ratio, s.rejected_ratio)};
}

LossParts Simpo(const LossContext& c) {
  const PairScores s = ScorePairs(c);
  const Val margin = (s.chosen_mean() - s.rejected_mean()) * c.Option("beta", 2);
  return {Softplus(c.Option("gamma", 0.5) - margin), CountOrdered(s.chosen_mean(), s.rejected_mean())};
}

// log(p/(1 − p)) of p = e^x.
Val LogOdds(Val x) { return x - Log(-x.b().Op("Expm1", {x})); }

LossParts Orpo(const LossContext& c) {
  const PairScores s = ScorePairs(c);
  const Val odds = LogOdds(s.chosen_mean()) - LogOdds(s.rejected_mean());
  return {Softplus(-odds) * c.Option("beta", 0.1) - s.chosen_mean(), CountOrdered(s.chosen_mean(), s.rejected_mean())};
}

using Parts = LossParts (*)(const LossContext&);

LossFunction PairLoss(const char* name, const char* text, std::vector<NumberOption> options, bool reference,
                      Parts parts) {
  return {.name = name,
          .text = text,
          .takes = "ignore_index",
          .options = std::move(options),
          .classes = true,
          .final_activations = "Softmax LogSoftmax",
          .counts_correct = true,
          .pairs = true,
          .reference = reference,
          .mean = LossMean::kSamples,
          .parts = parts};
}

}  // namespace

std::span<const LossFunction> PairLosses() {
  static const std::vector<LossFunction> rows = {
      PairLoss("dpo", "−log σ(beta·(r⁺ − r⁻)), r: log-probability of an answer minus that of the reference",
               {{"beta", 0.1, 1e-12, 1e12}, {"label_smoothing", 0, 0, 0.5}}, true, Dpo),
      PairLoss("ipo", "(r⁺ − r⁻ − 1/(2·beta))², r as in dpo, per token", {{"beta", 0.1, 1e-12, 1e12}}, true, Ipo),
      PairLoss("simpo", "−log σ(beta·(l⁺ − l⁻) − gamma), l: log-probability of an answer per token",
               {{"beta", 2, 1e-12, 1e12}, {"gamma", 0.5, 0, 1e12}}, false, Simpo),
      PairLoss("orpo", "−l⁺ − beta·log σ(log odds(e^l⁺) − log odds(e^l⁻)), l as in simpo", {{"beta", 0.1, 0, 1e12}},
               false, Orpo),
  };
  return rows;
}

}  // namespace onnxtrain
