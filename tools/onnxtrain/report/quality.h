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
#include "optim/session.h"
#include "optim/trainer.h"

namespace onnxtrain::cli {

struct SampleResult {
  int64_t sample = 0;      // of the evaluation data
  double label = 0;        // a class, or a number
  double prediction = 0;   // likewise
  double probability = 1;  // of the predicted class
  double loss = 0;         // -log of the probability of the label's class, or the absolute error
};

// Predictions of equal confidence: a tenth of [0, 1] each.
struct ConfidenceBin {
  int64_t samples = 0, correct = 0;
  double confidence = 0;  // sum
};

struct Quality {
  int64_t samples = 0;  // that were looked at; those with a label of ignore_index are not
  // Of class indices as labels, and of one output between 0 and 1; else 0.
  int64_t classes = 0;
  std::map<std::pair<int64_t, int64_t>, int64_t>
      confusion;  // samples by (label, prediction); vocabularies have 10^5 classes
  std::array<ConfidenceBin, 10> bins = {};
  std::vector<SampleResult> results;  // all; ascending by sample

  int64_t Count(int64_t label, int64_t prediction) const;
  double accuracy() const;
  // Σ |accuracy - confidence| over the bins, weighted by their samples (Naeini et al. 2015).
  double calibration_error() const;
};

// Predicts `most` samples at equal distances with the weights of the session. nullopt where neither classes nor numbers
// can be told from the labels: sequences, several labels per sample, losses without labels. kCancelled where `stop` was
// set.
absl::StatusOr<std::optional<Quality>> EvaluateQuality(Session& session, const TrainData& data, int64_t most,
                                                       int64_t ignore_index, const std::atomic<bool>* stop);

}  // namespace onnxtrain::cli
