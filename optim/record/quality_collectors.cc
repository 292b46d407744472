#include "optim/record/quality_collectors.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "frontend/data/text/block_columns.h"
#include "optim/record/scores.h"

namespace onnxtrain {
namespace {

constexpr double kLeastProbability = 1e-300;
constexpr int64_t kMostTargets = 64, kMostLabels = 1000;

// Returns the logarithm of a probability bounded from below; NaN counts as 0.
double Log(double probability) { return std::log(probability > kLeastProbability ? probability : kLeastProbability); }

// Adds a prediction to its bin. NaN, which a diverged model predicts, is never correct.
void AddConfidence(double confidence, bool correct, Quality* quality) {
  if (std::isnan(confidence)) confidence = 0, correct = false;
  ConfidenceBin& bin = quality->bins[static_cast<size_t>(std::clamp(10 * confidence, 0.0, 9.0))];
  bin.samples += 1;
  bin.correct += correct;
  bin.confidence += confidence;
}

// Collects predictions of one class per sample.
class ClassCollector : public QualityCollector {
 public:
  ClassCollector(const ScoreReader& scores, LabelForm form, int64_t ignore_index)
      : scores_(scores), form_(form), ignore_index_(ignore_index) {
    quality_.classes = std::max<int64_t>(2, scores.width());
  }

  void Add(int64_t sample, const PredictedBatch& batch, int64_t i) override {
    std::vector<double> row = scores_.Read(batch.values, i);
    if (row.size() == 1) row = {1 - row[0], row[0]};
    const int64_t label = Label(batch.labels, i);
    if (label >= 0 && label < quality_.classes) AddRow(sample, label, row);
  }

 private:
  int64_t Label(const HostTensor& labels, int64_t i) const {
    if (form_ != LabelForm::kDistribution) {
      const auto label = static_cast<int64_t>(std::llround(labels.At(i)));
      return label == ignore_index_ ? -1 : label;
    }
    int64_t best = 0;
    for (int64_t c = 1; c < quality_.classes; ++c) {
      if (labels.At(i * quality_.classes + c) > labels.At(i * quality_.classes + best)) best = c;
    }
    return best;
  }

  void AddRow(int64_t sample, int64_t label, const std::vector<double>& row) {
    const int64_t best = std::ranges::max_element(row) - row.begin();
    ++quality_.samples;
    ++quality_.confusion[{label, best}];
    AddConfidence(row[best], best == label, &quality_);
    quality_.results.push_back({.sample = sample,
                                .labels = {static_cast<double>(label)},
                                .predictions = {static_cast<double>(best)},
                                .probability = row[best],
                                .loss = -Log(row[label])});
  }

  const ScoreReader scores_;
  const LabelForm form_;
  const int64_t ignore_index_;
};

// Collects predictions of one class per position from scores [n, classes, …], [n, …, classes], or binary [n, …].
class PositionCollector : public QualityCollector {
 public:
  // `blocks`: the samples of a language model; null: it is none.
  PositionCollector(const LossTerm& term, const PredictedBatch& first, int64_t classes, bool classes_first,
                    int64_t ignore_index, const Dataset* blocks)
      : blocks_(blocks),
        tail_(FindTail(term.activation)),
        classes_first_(classes_first),
        binary_(classes == 1),
        ignore_index_(ignore_index) {
    quality_.kind = QualityKind::kPositions;
    quality_.areas = first.labels.type().rank() > 2;
    quality_.classes = std::max<int64_t>(2, classes);
    row_.resize(quality_.classes);
    if (blocks != nullptr) quality_.tokens.emplace();
  }

  void Add(int64_t sample, const PredictedBatch& batch, int64_t i) override {
    const int64_t positions = batch.labels.size() / batch.samples();
    SampleResult result{.sample = sample};
    if (blocks_ != nullptr)
      places_ = ReadBlockColumn(*blocks_, sample, BlockRole::kPositions).value_or(std::vector<int64_t>());
    int64_t counted = 0, correct = 0;
    for (int64_t p = 0; p < positions; ++p) {
      const auto label = static_cast<int64_t>(std::llround(batch.labels.At(i * positions + p)));
      const int64_t best = ReadRow(batch.values, i, p, positions);
      const bool counts = label != ignore_index_ && label >= 0 && label < quality_.classes;
      result.labels.push_back(counts ? static_cast<double>(label) : -1);
      result.predictions.push_back(static_cast<double>(best));
      if (blocks_ != nullptr) result.losses.push_back(counts ? static_cast<float>(-Log(row_[label])) : 0);
      if (!counts) continue;
      ++counted, correct += best == label;
      result.loss -= Log(row_[label]);
      Count(label, best);
      if (p < std::ssize(places_)) CountToken(result, p, {1, best == label, -Log(row_[label])});
    }
    if (counted == 0) return;
    result.loss /= static_cast<double>(counted);
    result.probability = static_cast<double>(correct) / static_cast<double>(counted);
    quality_.samples += 1;
    quality_.positions += counted;
    Keep(std::move(result));
  }

 private:
  // Counts the token that position `p` predicts.
  void CountToken(const SampleResult& result, int64_t p, const TokenSum& token) {
    std::vector<TokenSum>& positions = quality_.tokens->by_position;
    const int64_t place = places_[p] + 1;
    if (std::ssize(positions) <= place) positions.resize(place + 1);
    positions[place].Add(token);
    quality_.tokens->by_token[static_cast<int64_t>(result.labels[p])].Add(token);
    if (places_[p] > 0 && result.labels[p - 1] < 0) quality_.tokens->first.Add(token);
  }

  void Count(int64_t label, int64_t best) {
    ++quality_.confusion[{label, best}];
    AddConfidence(row_[best], best == label, &quality_);
  }

  // Stores the probabilities of the classes in row_, and returns the most probable class.
  int64_t ReadRow(const HostTensor& values, int64_t i, int64_t p, int64_t positions) {
    const int64_t classes = quality_.classes, begin = i * classes * positions;
    if (binary_) {
      const double x = values.At(i * positions + p);
      row_[1] = tail_ == Tail::kSigmoid ? x : 1 / (1 + std::exp(-x));
      row_[0] = 1 - row_[1];
      return row_[1] > row_[0];
    }
    for (int64_t c = 0; c < classes; ++c)
      row_[c] = values.At(begin + (classes_first_ ? c * positions + p : p * classes + c));
    const int64_t best = std::ranges::max_element(row_) - row_.begin();
    if (tail_ == Tail::kSoftmax) return best;
    const double most = tail_ == Tail::kLogSoftmax ? 0 : row_[best];
    double sum = 0;
    for (double& x : row_) sum += x = std::exp(x - most);
    if (tail_ == Tail::kLogSoftmax) return best;
    for (double& x : row_) x /= sum;
    return best;
  }

  // Keeps the positions of the worst samples only: those of all would take too much memory.
  void Keep(SampleResult result) {
    worst_.emplace(result.loss, quality_.results.size());
    quality_.results.push_back(std::move(result));
    if (worst_.size() <= kWorstSamples) return;
    SampleResult& dropped = quality_.results[worst_.begin()->second];
    dropped.labels.clear(), dropped.labels.shrink_to_fit();
    dropped.predictions.clear(), dropped.predictions.shrink_to_fit();
    dropped.losses.clear(), dropped.losses.shrink_to_fit();
    worst_.erase(worst_.begin());
  }

  const Dataset* const blocks_;
  std::vector<int64_t> places_;  // positions of the tokens of a row in their samples
  const Tail tail_;
  const bool classes_first_, binary_;
  const int64_t ignore_index_;
  std::vector<double> row_;
  std::set<std::pair<double, size_t>> worst_;  // loss and index into results
};

// Collects multi-label predictions: a yes or no for each class.
class LabelCollector : public QualityCollector {
 public:
  explicit LabelCollector(const ScoreReader& scores) : scores_(scores) {
    quality_.kind = QualityKind::kLabels;
    quality_.classes = scores.width();
  }

  void Add(int64_t sample, const PredictedBatch& batch, int64_t i) override {
    const std::vector<double> row = scores_.Read(batch.values, i);
    SampleResult result{.sample = sample, .probability = 0};
    for (int64_t c = 0; c < quality_.classes; ++c) {
      const bool has = batch.labels.At(i * quality_.classes + c) >= 0.5, found = row[c] >= 0.5;
      if (has || found) ++quality_.confusion[{has ? c : Quality::kNone, found ? c : Quality::kNone}];
      if (has) result.labels.push_back(static_cast<double>(c));
      if (found) result.predictions.push_back(static_cast<double>(c));
      AddConfidence(std::max(row[c], 1 - row[c]), has == found, &quality_);
      result.loss -= Log(has ? row[c] : 1 - row[c]) / static_cast<double>(quality_.classes);
      result.probability += (has == found ? 1.0 : 0.0) / static_cast<double>(quality_.classes);
    }
    ++quality_.samples;
    quality_.results.push_back(std::move(result));
  }

 private:
  const ScoreReader scores_;
};

// Collects numbers, which have no classes.
class NumberCollector : public QualityCollector {
 public:
  explicit NumberCollector(const ScoreReader& scores) : scores_(scores) { quality_.kind = QualityKind::kNumbers; }

  void Add(int64_t sample, const PredictedBatch& batch, int64_t i) override {
    SampleResult result{.sample = sample, .labels = {}, .predictions = scores_.Read(batch.values, i)};
    for (int64_t t = 0; t < scores_.width(); ++t) result.labels.push_back(batch.labels.At(i * scores_.width() + t));
    ++quality_.samples;
    quality_.results.push_back(std::move(result));
  }

  // Divides each target's error by its spread, so that units do not matter.
  Quality Take() override {
    const auto targets = static_cast<size_t>(scores_.width());
    for (size_t t = 0; t < targets; ++t) {
      const double spread = ErrorsOf(quality_, t).spread;
      for (SampleResult& r : quality_.results)
        r.loss += std::abs(r.predictions[t] - r.labels[t]) / (spread > 0 ? spread : 1) / static_cast<double>(targets);
    }
    return std::move(quality_);
  }

 private:
  const ScoreReader scores_;
};

// Collects texts of models that are trained with ctc.
class TextCollector : public QualityCollector {
 public:
  TextCollector(const LossChoice& loss, int64_t ignore_index)
      : alphabet_(loss.alphabet),
        probabilities_(FindTail(loss.leading().activation) == Tail::kSoftmax),
        ignore_index_(ignore_index) {
    quality_.kind = QualityKind::kTexts;
    quality_.classes = std::ssize(alphabet_->texts());
  }

  void Add(int64_t sample, const PredictedBatch& batch, int64_t i) override {
    const int64_t width = batch.labels.size() / batch.samples();
    std::vector<int64_t> label;
    for (int64_t k = 0; k < width; ++k) {
      const auto c = static_cast<int64_t>(std::llround(batch.labels.At(i * width + k)));
      if (c != ignore_index_) label.push_back(c);
    }
    const BestPath path = ReadBestPath(batch.values, i, alphabet_->blank(), probabilities_);
    const TextErrors errors = CompareTexts(alphabet_.get(), path.classes, label);
    ++quality_.samples;
    AddConfidence(path.confidence, errors.edits == 0, &quality_);
    quality_.results.push_back(
        {.sample = sample,
         .labels = std::vector<double>(label.begin(), label.end()),
         .predictions = std::vector<double>(path.classes.begin(), path.classes.end()),
         .probability = path.confidence,
         .loss = static_cast<double>(errors.edits) / static_cast<double>(std::max<int64_t>(1, errors.units))});
  }

 private:
  const std::shared_ptr<const Alphabet> alphabet_;
  const bool probabilities_;
  const int64_t ignore_index_;
};

// `labels`: one label per sample and position.
std::unique_ptr<QualityCollector> MakePositionCollector(const LossTerm& term, const PredictedBatch& first,
                                                        int64_t ignore_index, const Dataset* blocks) {
  const Shape& shape = first.values.shape();
  const Shape label(first.labels.shape().begin() + 1, first.labels.shape().end());
  const auto axis = ClassAxis(shape, label);
  if (!axis || first.values.size() / shape[*axis] != first.labels.size()) return nullptr;
  return std::make_unique<PositionCollector>(term, first, shape[*axis], *axis == 1, ignore_index, blocks);
}

}  // namespace

std::unique_ptr<QualityCollector> MakeQualityCollector(const LossChoice& loss, const PredictedBatch& first,
                                                       int64_t ignore_index, const Dataset* blocks) {
  const LossTerm& term = loss.leading();
  if (term.form == LabelForm::kSequence) {
    const bool texts = loss.alphabet != nullptr && first.values.type().rank() == 3 &&
                       first.values.shape()[2] == std::ssize(loss.alphabet->texts());
    return texts ? std::make_unique<TextCollector>(loss, ignore_index) : nullptr;
  }
  const ScoreReader scores(loss, first.values.shape());
  const int64_t n = first.samples(), labels = first.labels.size(), width = scores.width();
  using Form = ScoreReader::Form;
  if (scores.form() == Form::kClasses) {
    if (labels != n * (term.form == LabelForm::kClasses ? 1 : width)) return nullptr;
    return std::make_unique<ClassCollector>(scores, term.form, ignore_index);
  }
  if (term.form == LabelForm::kClasses) return MakePositionCollector(term, first, ignore_index, blocks);
  if (term.form != LabelForm::kElements || labels != n * width) return nullptr;
  if (scores.form() == Form::kBinary && width == 1)
    return std::make_unique<ClassCollector>(scores, term.form, ignore_index);
  const bool vector = first.values.type().rank() <= 2;
  if (scores.form() == Form::kBinary && !vector)
    return std::make_unique<PositionCollector>(term, first, 1, false, ignore_index, nullptr);
  if (scores.form() == Form::kBinary && width <= kMostLabels) return std::make_unique<LabelCollector>(scores);
  if (scores.form() == Form::kNumbers && vector && width <= kMostTargets)
    return std::make_unique<NumberCollector>(scores);
  return nullptr;
}

}  // namespace onnxtrain
