// The loop, and nothing but the loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/loader.h"
#include "optim/plateau.h"
#include "optim/session.h"

namespace onnxtrain {

// A batch tensor named after a model input becomes a feed; the one named kLabelFeed the labels.
struct TrainData {
  std::shared_ptr<const Dataset> dataset;
  std::vector<FeedSpec> specs;
};

struct TrainOptions {
  int64_t batch_size = 32;     // samples per update
  int64_t epochs = 3;
  int64_t max_steps = 0;       // 0: no limit
  double max_seconds = 0;      // 0: no limit
  int64_t log_every = 0;       // updates; 0: about 20 reports per epoch
  int64_t eval_every = 0;      // updates; 0: after each epoch
  double log_seconds = 0, eval_seconds = 0;  // above 0: by time instead
  bool shuffle = true, drop_last = false;
  int num_workers = 1, prefetch_factor = 2;
  uint64_t seed = 42;
  int64_t most_skips = 20;  // so many updates in a row without a finite gradient mean that none will come: the run ends
  Plateau* plateau = nullptr;  // told of every evaluation after the first update
  std::string monitor = "loss";  // what it is told
  const std::atomic<bool>* stop = nullptr;  // set from a signal handler: ends after the running update
};

struct EvalMetrics {
  double loss = 0;
  double accuracy = -1;        // < 0: not meaningful for this loss
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> metrics;  // as EvalNames has them; NaN where one is not defined
};

// What evaluations tell besides loss and accuracy: the metrics, then each loss of a sum by itself, without its factor, as
// "l1@OUTPUT".
std::vector<std::string> EvalNames(const LossChoice& loss, const std::vector<std::string>& metrics);

// "loss", "accuracy" or one of EvalNames; nullopt where there is none.
std::optional<double> MetricNamed(const EvalMetrics& metrics, const std::string& name);

// One line of metrics.jsonl.
struct TrainEvent {
  enum class Kind : uint8_t { kStep, kEval } kind = Kind::kStep;
  int64_t step = 0;
  double epoch = 0;            // fractional
  StepReport report;           // kStep
  double samples_per_second = 0;
  EvalMetrics eval;            // kEval
};

struct TrainResult {
  // "epochs", "max_steps", "max_time", "signal"; "not_finite": most_skips updates in a row had no finite gradient
  std::string stop_reason;
  int64_t steps = 0, samples = 0, skipped_steps = 0, oom_retries = 0;
  double epochs = 0, seconds = 0;               // seconds: wall time of the loop, compile and eval included
  double final_loss = 0;                        // mean of the last reported window of updates; NaN if all were skipped
  EvalMetrics eval_before, eval;                // the last one after a step; samples 0 where there was none
  double compile_seconds = 0, data_seconds = 0, compute_seconds = 0, eval_seconds = 0;
  double optimizer_seconds = -1;                // part of compute_seconds; below 0: not known
};

// Of the averaged weights where the session has them. `stop` (may be null) ends it early with a Cancelled status.
absl::StatusOr<EvalMetrics> EvaluateAll(Session& session, const TrainData& data, int num_workers,
                                        const std::atomic<bool>* stop = nullptr);

// `eval` may have no data set. `on_event` is called on this thread.
absl::StatusOr<TrainResult> Train(Session& session, const TrainData& train, const TrainData& eval,
                                  const TrainOptions& options, const std::function<void(const TrainEvent&)>& on_event);

}  // namespace onnxtrain
