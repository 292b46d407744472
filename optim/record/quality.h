// How good the predictions of a model are, sample by sample: for the report.
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

// The activation that an output ends in.
enum class Tail : uint8_t { kNone, kSoftmax, kLogSoftmax, kSigmoid };

// How the numbers of the leading output become probabilities.
class ScoreReader {
 public:
  enum class Form : uint8_t { kClasses, kBinary, kNumbers };

  // `output`: [n, …], of the loss's leading output.
  ScoreReader(const LossChoice& loss, const Shape& output);

  Form form() const { return form_; }
  int64_t width() const { return width_; }  // numbers per sample
  // Of sample i of `values`: probabilities of classes, or of each output to be 1, or the numbers as they are.
  std::vector<double> Read(const HostTensor& values, int64_t i) const;

 private:
  Tail tail_ = Tail::kNone;
  Form form_ = Form::kNumbers;
  int64_t width_ = 1;
};

inline constexpr size_t kWorstSamples = 12;

struct SampleResult {
  int64_t sample = 0;  // of the evaluation data
  // Classes or numbers: one, or one for each target or position; -1: no label. Of the positions of a sample that is not
  // among the worst, none are kept.
  std::vector<double> labels, predictions;
  double probability = 1;  // of the predicted class; of several predictions, the share that is correct
  double loss = 0;         // mean -log of the probability of the labels; of numbers, see NumberErrors
};

// Predictions of equal confidence: a tenth of [0, 1] each.
struct ConfidenceBin {
  int64_t samples = 0, correct = 0;
  double confidence = 0;  // sum
};

enum class QualityKind : uint8_t {
  kClass,      // one of several classes
  kPositions,  // one of several classes at each position: pixels, tokens
  kLabels,     // each of several classes, or not
  kNumbers,    // one number or more
};

struct Quality {
  QualityKind kind = QualityKind::kClass;
  int64_t samples = 0;    // that were looked at; those with labels of ignore_index alone are not
  int64_t positions = 0;  // with labels, of all samples: kPositions
  bool areas = false;     // they are those of pictures
  int64_t classes = 0;    // 0: kNumbers
  // Samples or positions by (label, prediction); vocabularies have 10^5 classes. kLabels: (c, c) are samples that have
  // class c and were found to, (c, kNone) that have it and were not, (kNone, c) that were found to and have it not.
  std::map<std::pair<int64_t, int64_t>, int64_t> confusion;
  static constexpr int64_t kNone = -1;
  std::array<ConfidenceBin, 10> bins = {};
  std::vector<SampleResult> results;  // ascending by sample

  int64_t Count(int64_t label, int64_t prediction) const;
  // Of all classes, positions or pairs of sample and class.
  double accuracy() const;
  // Σ |accuracy - confidence| over the bins, weighted by their samples (Naeini et al. 2015).
  double calibration_error() const;
};

// Of one target of kNumbers.
struct NumberErrors {
  double rmse = 0, mae = 0;
  double r2 = 0;      // NaN where all labels are equal
  double spread = 0;  // standard deviation of the labels
};
NumberErrors ErrorsOf(const Quality& quality, size_t target);

// The samples with the greatest loss, the worst first.
std::vector<SampleResult> FindWorst(const Quality& quality, size_t count);

// Predicts at most `most` samples at equal distances, fewer where their outputs are large, with the weights of the
// session. nullopt where no prediction can be compared with a label: sequences, images, losses without labels.
// kCancelled where `stop` was set.
absl::StatusOr<std::optional<Quality>> EvaluateQuality(Session& session, const TrainData& data, int64_t most,
                                                       int64_t ignore_index, const std::atomic<bool>* stop);

}  // namespace onnxtrain
