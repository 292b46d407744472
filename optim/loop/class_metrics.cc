// Metrics for classes and binary labels.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "optim/loop/metrics.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

Val Total(Val condition, DType dtype) { return ReduceSum(Cast(condition, dtype), {}, false); }

// Predictions and labels as class indices; binary labels become the classes 0 and 1.
struct Classified {
  Val predicted, actual;  // i64 of one shape
  Val counts;             // bool: false for ignored labels
  int64_t classes;
};

Classified Classify(const MetricContext& c) {
  Builder& b = c.y.b();
  if (c.form == LabelForm::kElements) {
    const Val actual = Cast(Greater(c.labels, b.Scalar(c.labels.dtype(), 0.5)), DType::kInt64);
    const Val predicted = Cast(ChooseBinary(c.y, c.least_logit), DType::kInt64);
    return {predicted, actual, Equal(actual, actual), 2};
  }
  if (c.form == LabelForm::kDistribution) {
    const int64_t axis = c.y.rank() - 1;
    const Val actual = ArgMax(c.labels, axis);
    return {ArgMax(c.y, axis), actual, Equal(actual, actual), c.y.dim(-1)};
  }
  const auto [scores, labels] = AlignClasses(c.y, c.labels);
  const Val ignored = Equal(labels, b.Scalar(DType::kInt64, static_cast<double>(c.ignore_index)));
  return {ArgMax(scores, 1), labels, Not(ignored), scores.dim(1)};
}

std::vector<Val> AccuracyStats(const MetricContext& c) {
  const Classified k = Classify(c);
  return {Total(And(Equal(k.predicted, k.actual), k.counts), c.y.dtype()), Total(k.counts, c.y.dtype())};
}

// Counts a label as in the top k if fewer than k scores are greater than its own.
std::vector<Val> TopStats(const MetricContext& c) {
  const auto pair = AlignClasses(c.y, c.labels);
  const auto [own, ignored] = GatherClassScores(pair, c.ignore_index);
  Shape one = pair.scores.shape();
  one[1] = 1;
  const Val above = ReduceSum(Cast(Greater(pair.scores, Reshape(own, one)), c.y.dtype()), {1}, false);
  const Val counts = Not(ignored);
  const Val hit = Less(above, c.y.b().Scalar(c.y.dtype(), static_cast<double>(c.k)));
  return {Total(And(hit, counts), c.y.dtype()), Total(counts, c.y.dtype())};
}

double Ratio(const MetricStats& s) { return s[1][0] > 0 ? s[0][0] / s[1][0] : kUndefinedMetric; }

// Returns by class: true positives, predictions, labels.
std::vector<Val> ConfusionStats(const MetricContext& c) {
  const Classified k = Classify(c);
  const int64_t n = NumElements(k.actual.shape());
  const Val index = ClassIndices(c.y.b(), k.classes, 2, 1), counts = Reshape(k.counts, {n, 1});
  const Val predicted = And(Equal(Reshape(k.predicted, {n, 1}), index), counts),
            actual = And(Equal(Reshape(k.actual, {n, 1}), index), counts);
  const auto sum = [&](Val hits) { return ReduceSum(Cast(hits, c.y.dtype()), {0}, false); };
  return {sum(And(predicted, actual)), sum(predicted), sum(actual)};
}

// Returns 2·tp / (predictions + labels) of one class.
double ClassF1(const MetricStats& s, size_t k) { return 2 * s[0][k] / (s[1][k] + s[2][k]); }

// Returns the mean over the classes that occur among labels or predictions (as in scikit-learn).
double F1Macro(const MetricStats& s) {
  double sum = 0;
  int occurring = 0;
  for (size_t k = 0; k < s[0].size(); ++k) {
    if (s[1][k] + s[2][k] == 0) continue;
    sum += ClassF1(s, k);
    ++occurring;
  }
  return occurring > 0 ? sum / occurring : kUndefinedMetric;
}

double F1(const MetricStats& s) {
  if (s[0].size() != 2) return F1Macro(s);
  return s[1][1] + s[2][1] > 0 ? ClassF1(s, 1) : 0;
}

// Returns the scores of class 1, or of each class, and the labels, −1 if ignored.
std::vector<Val> ScoreStats(const MetricContext& c) {
  const Classified k = Classify(c);
  const int64_t n = NumElements(k.actual.shape());
  const Val none = c.y.b().Scalar(DType::kInt64, -1);
  const Val actual = Cast(Reshape(Where(k.counts, k.actual, none), {n}), c.y.dtype());
  if (c.form == LabelForm::kElements) return {Reshape(c.y, {n}), actual};
  const bool rows = c.form == LabelForm::kDistribution || c.y.rank() == 2;
  Val scores = rows ? c.y : AlignClasses(c.y, c.labels).scores;
  if (scores.rank() > 2 && c.form == LabelForm::kClasses) {  // [N,C,…] → [N,…,C]
    scores = Transpose(Reshape(scores, {scores.dim(0), k.classes, n / scores.dim(0)}), {0, 2, 1});
  }
  scores = Reshape(scores, {n, k.classes});
  if (k.classes == 2) return {Reshape(Slice(scores, 1, 1, 1) - Slice(scores, 1, 0, 1), {n}), actual};
  return {Softmax(scores, 1), actual};
}

// Returns the area under the ROC curve of class `k` against the rest: the share of correctly ordered pairs, ties
// counting half (Mann & Whitney, 1947). NaN if there are no such pairs.
double ClassAuc(const std::vector<double>& scores, const std::vector<double>& actual, size_t k, size_t width) {
  std::vector<std::pair<double, bool>> order;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] >= 0)
      order.emplace_back(scores[i * width + (width > 1 ? k : 0)], actual[i] == static_cast<double>(k));
  }
  std::sort(order.begin(), order.end());
  double below = 0, positives = 0, ordered = 0;  // negatives with lower scores; correctly ordered pairs
  for (size_t i = 0; i < order.size();) {
    double same[2] = {0, 0};
    const size_t begin = i;
    for (; i < order.size() && order[i].first == order[begin].first; ++i) ++same[order[i].second ? 1 : 0];
    ordered += same[1] * (below + same[0] / 2);
    below += same[0];
    positives += same[1];
  }
  return below > 0 && positives > 0 ? ordered / (below * positives) : kUndefinedMetric;
}

// Returns, for two classes, the area of class 1 against 0; for more, the mean over classes of one against the rest.
double Auc(const MetricStats& s) {
  if (s[1].empty()) return kUndefinedMetric;
  const size_t width = s[0].size() / s[1].size();
  if (width <= 1) return ClassAuc(s[0], s[1], 1, 1);
  double sum = 0;
  int defined = 0;
  for (size_t k = 0; k < width; ++k) {
    const double area = ClassAuc(s[0], s[1], k, width);
    if (std::isnan(area)) continue;
    sum += area;
    ++defined;
  }
  return defined > 0 ? sum / defined : kUndefinedMetric;
}

std::vector<Val> LikelihoodStats(const MetricContext& c) {
  if (c.form == LabelForm::kDistribution) {
    const Val log_prob = LogSoftmax(c.y, c.y.rank() - 1);
    return {ReduceSum(-(c.labels * log_prob), {}, false), ReduceSum(c.labels, {}, false)};
  }
  const auto pair = AlignClasses(c.y, c.labels);
  const auto [log_prob, ignored] = GatherClassScores({LogSoftmax(pair.scores, 1), pair.labels}, c.ignore_index);
  return {ReduceSum(Where(ignored, c.y.b().Scalar(c.y.dtype(), 0), -log_prob), {}, false),
          Total(Not(ignored), c.y.dtype())};
}

double Perplexity(const MetricStats& s) { return std::exp(Ratio(s)); }

double Bits(const MetricStats& s) { return Ratio(s) / std::numbers::ln2; }
double BytesPerToken(const TextUnit& unit) { return unit.bytes_per_token; }
double CharactersPerToken(const TextUnit& unit) { return unit.tokens_are_characters ? 1 : 0; }

}  // namespace

std::span<const MetricRow> ClassMetrics() {
  static const std::vector<MetricRow> rows = {
      {.name = "accuracy",
       .text = "share of correct predictions",
       .classes = true,
       .binary_labels = true,
       .stats = AccuracyStats,
       .value = Ratio},
      {.name = "top",
       .text = "share of labels among the K highest scores: top5",
       .numbered = true,
       .classes = true,
       .stats = TopStats,
       .value = Ratio},
      {.name = "f1",
       .text = "F1 of class 1 of two, macro of more",
       .classes = true,
       .binary_labels = true,
       .stats = ConfusionStats,
       .value = F1},
      {.name = "f1_macro",
       .text = "mean F1 of the classes",
       .classes = true,
       .binary_labels = true,
       .stats = ConfusionStats,
       .value = F1Macro},
      {.name = "auc",
       .text = "area under the ROC curve; of more than two classes: mean of one against the rest",
       .keep = true,
       .classes = true,
       .binary_labels = true,
       .stats = ScoreStats,
       .value = Auc},
      {.name = "perplexity",
       .text = "e to the mean negative log-likelihood",
       .classes = true,
       .stats = LikelihoodStats,
       .value = Perplexity},
      {.name = "bits_per_byte",
       .text = "bits of the mean negative log-likelihood for each byte of text",
       .classes = true,
       .stats = LikelihoodStats,
       .value = Bits,
       .error_power = 1,
       .per_token = BytesPerToken},
      {.name = "bits_per_character",
       .text = "the same for each character, of models of characters",
       .classes = true,
       .stats = LikelihoodStats,
       .value = Bits,
       .error_power = 1,
       .per_token = CharactersPerToken},
  };
  return rows;
}

}  // namespace onnxtrain
