// Evaluates all samples of a data set.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/text/token_blocks.h"
#include "optim/step/session.h"

namespace onnxtrain {

class Peers;

// Samples with the specs that feed them. Each FeedSpec feeds the model input, or the labels (LossFeed::name), of its
// name.
struct TrainData {
  std::shared_ptr<const Dataset> dataset;
  std::vector<FeedSpec> specs;
  TextUnit text_unit;
};

// Returns the names of the tensors of a GlobalBatch that SetTensors sets from the loader's batches.
std::vector<std::string> FeedNames(const std::vector<FeedSpec>& specs);
void SetTensors(const Batch& batch, GlobalBatch* global_batch);

struct EvalMetrics {
  double loss = 0;
  double accuracy = -1;  // < 0: not defined for this loss
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> metrics;  // by EvalNames; NaN if undefined
};

// Returns the names of evaluation results besides loss and accuracy: the metrics, then the terms of a sum of losses,
// each without its factor, as "l1@OUTPUT".
std::vector<std::string> EvalNames(const LossChoice& loss, const std::vector<std::string>& metrics);

// Finds "loss", "accuracy" or one of EvalNames.
std::optional<double> FindEvalMetric(const EvalMetrics& metrics, const std::string& name);

// Adds losses, counts and metrics of further samples.
void AddEvaluation(const std::vector<Metric>& metrics, const Evaluation& part, Evaluation* total);

// Reads the batches of an evaluation and evaluates them in the session.
class EvaluatedBatches {
 public:
  // `stop` may be null. All arguments must outlive the object.
  EvaluatedBatches(Session& session, const TrainData& data, const std::atomic<bool>* stop)
      : session_(session), data_(data), stop_(stop), global_batch_(FeedNames(data.specs)) {}

  absl::Status Open(const LoaderOptions& load);
  int64_t batches() const { return batches_; }  // over all peers

  // Adds the next batch and returns true; returns false at the end.
  absl::StatusOr<bool> AddNext(Evaluation* total, int64_t* samples);
  // Reads the next batch and returns its number of samples; 0 at the end.
  absl::StatusOr<int64_t> TakeNext();
  // Evaluates and adds the batch that TakeNext has read.
  absl::Status AddTaken(int64_t count, Evaluation* total, int64_t* samples);
  absl::Status AddAll(Evaluation* total, int64_t* samples);

 private:
  Session& session_;
  const TrainData& data_;
  const std::atomic<bool>* const stop_;
  GlobalBatch global_batch_;
  std::unique_ptr<Loader> loader_;  // null: no batch
  int64_t batches_ = 0;
};

// Evaluates all samples, with the averaged weights if the session has them. `stop` (may be null) ends it early with
// kCancelled. With `peers`, which must all call it, each evaluates a part of the batches.
absl::StatusOr<EvalMetrics> EvaluateAll(Session& session, const TrainData& data, int num_workers,
                                        const std::atomic<bool>* stop = nullptr, Peers* peers = nullptr);

}  // namespace onnxtrain
