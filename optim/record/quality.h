// Compares the predictions of a model with the labels, sample by sample, for report.html.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain {

inline constexpr size_t kWorstSamples = 12;

struct SampleResult {
  int64_t sample = 0;  // index in the evaluation data
  // Classes or numbers, one per target or position; -1: no label. With kPositions, kept for the worst samples only.
  std::vector<double> labels, predictions;
  std::vector<float> losses;  // of a language model: of each position, 0 without a label; kept like labels
  double probability = 1;     // of the predicted class; with several predictions, the share of correct ones
  double loss = 0;            // mean -log of the probability of the labels; error of the numbers for kNumbers
};

// Predictions whose confidence is in the same tenth of [0, 1].
struct ConfidenceBin {
  int64_t samples = 0, correct = 0;
  double confidence = 0;  // sum
};

// Labelled tokens of a language model.
struct TokenSum {
  int64_t tokens = 0, correct = 0;
  double loss = 0;

  double mean_loss() const { return tokens > 0 ? loss / static_cast<double>(tokens) : 0; }
  void Add(const TokenSum& other) { tokens += other.tokens, correct += other.correct, loss += other.loss; }
};

struct TokenLosses {
  std::vector<TokenSum> by_position;     // by the position of the predicted token in its sample
  std::map<int64_t, TokenSum> by_token;  // by the label
  TokenSum first;                        // the first tokens of answers, which follow tokens that carry no loss
};

enum class QualityKind : uint8_t {
  kClass,      // one of several classes
  kPositions,  // one of several classes at each position: pixels, tokens
  kLabels,     // each of several classes, or not
  kNumbers,    // one number or more
  kTexts,      // classes of an alphabet, in the order of the text; `loss` is the character error rate
};

struct Quality {
  QualityKind kind = QualityKind::kClass;
  int64_t samples = 0;    // evaluated samples, without those whose labels are all ignore_index
  int64_t positions = 0;  // kPositions: labelled positions of all samples
  bool areas = false;     // the positions are pixels
  int64_t classes = 0;    // 0: kNumbers
  // Counts samples or positions by (label, prediction); sparse, since vocabularies have 10^5 classes. With kLabels,
  // (c, c) counts true positives of class c, (c, kNone) false negatives and (kNone, c) false positives.
  std::map<std::pair<int64_t, int64_t>, int64_t> confusion;
  static constexpr int64_t kNone = -1;
  std::array<ConfidenceBin, 10> bins = {};
  std::vector<SampleResult> results;  // ascending by sample
  std::optional<TokenLosses> tokens;  // of a language model

  int64_t Count(int64_t label, int64_t prediction) const;
  // Returns the share of correct samples, positions, or pairs of sample and class.
  double accuracy() const;
  // Returns Σ |accuracy - confidence| over the bins, weighted by their samples (Naeini et al. 2015).
  double calibration_error() const;
};

// Errors of one target of kNumbers.
struct NumberErrors {
  double rmse = 0, mae = 0;
  double r2 = 0;      // NaN if all labels are equal
  double spread = 0;  // standard deviation of the labels
};
NumberErrors ErrorsOf(const Quality& quality, size_t target);

// Returns the `count` samples with the greatest loss, the worst first.
std::vector<SampleResult> FindWorst(const Quality& quality, size_t count);

// Predicts at most `most` evenly spaced samples with the weights of the session; fewer if the outputs are large.
// Returns nullopt if predictions cannot be compared with labels (sequences, images, losses without labels), and
// kCancelled if `stop` was set.
absl::StatusOr<std::optional<Quality>> EvaluateQuality(Session& session, const TrainData& data, int64_t most,
                                                       int64_t ignore_index, const std::atomic<bool>* stop);

}  // namespace onnxtrain
