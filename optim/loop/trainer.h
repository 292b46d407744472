// Runs the training loop: epochs, reports, evaluations, stop conditions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "optim/loop/evaluate.h"
#include "optim/loop/lr_schedule.h"
#include "optim/loop/peers.h"
#include "optim/record/telemetry/resources.h"
#include "optim/record/telemetry/statistics.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Shares of the compute time, measured over a few updates; the rest is overhead. All 0: unknown.
struct PhaseShares {
  double copy = 0, forward = 0, backward = 0, update = 0;
};

struct TrainResult {
  // "epochs", "max_steps", "max_time", "early_stopping", "signal"; "end_of_data": a stream ended; "not_finite":
  // max_consecutive_skips was reached.
  std::string stop_reason;
  int64_t steps = 0, samples = 0, skipped_steps = 0, oom_retries = 0;
  double epochs = 0, seconds = 0;  // seconds: wall time of the loop, with compilation and evaluation
  double final_loss = 0;           // mean over the updates of the last report; NaN if all were skipped
  EvalMetrics eval_before, eval;   // before the first and after the last step; samples = 0: none
  double compile_seconds = 0, data_seconds = 0, compute_seconds = 0, eval_seconds = 0, checkpoint_seconds = 0;
  // The following fields are of this process alone.
  PhaseShares phases;                   // shares of compute_seconds
  double checkpoint_pause_seconds = 0;  // the longest wait of an update for the copy of a checkpoint
  CommunicationTime communication;      // communication with peers
  // Seconds of one update including its wait for data, without compilation; 0: no update.
  double step_median_seconds = 0, step_p95_seconds = 0;
};

// The best evaluation so far, by the monitored metric.
struct BestEvaluation {
  int64_t step = -1;  // < 0: none yet
  double metric = 0;
  int64_t worse_since = 0;  // evaluations since then
};

// The position of the loop between two updates. Together with Session::State it is all that a run needs to continue as
// if never interrupted: the order of the samples follows from seed and steps.
struct LoopPosition {
  TrainResult result;  // so far
  int64_t logged_step = 0, logged_samples = 0, evaluated_step = -1;
  double logged_seconds = 0;
  BestEvaluation best;
  Plateau::State plateau;
  OutlierWindow losses, grad_norms;
  std::vector<Outlier> outliers;  // since the last report
};

enum class SaveReason : uint8_t {
  kInterval,
  kAsked,  // TrainOptions::save_now
  kBest,   // the monitored metric is the best so far
  kEnd     // no update follows
};

struct TrainOptions {
  int64_t batch_size = 32;  // samples per update
  int64_t epochs = 3;
  int64_t max_steps = 0;                     // 0: no limit
  double max_seconds = 0;                    // 0: no limit
  int64_t log_every = 0;                     // updates; 0: about 20 reports per epoch
  int64_t eval_every = 0;                    // updates; 0: after each epoch
  double log_seconds = 0, eval_seconds = 0;  // above 0: by time instead
  bool shuffle = true, length_grouping = false, drop_last = false;
  TokenBudget tokens;                                         // if on, replaces batch_size
  int num_workers = 1, max_workers = 0, prefetch_factor = 2;  // as in LoaderOptions
  MixOptions mix;
  uint64_t seed = 42;
  int64_t max_consecutive_skips = 20;  // ends the run after this many consecutive updates without a finite gradient
  Plateau* plateau = nullptr;          // updated after every evaluation but the first
  std::string monitor = "loss";        // the metric for plateau and for comparing evaluations
  bool monitor_max = false;            // greater is better
  int64_t patience = 0;                // evaluations without improvement that end the run; 0: no limit
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler: ends the run after the current update

  bool saves_state = true;                // saving reads Session::State; equal on all peers
  int64_t save_every = 0;                 // updates; 0: only by the options below
  double save_seconds = 0;                // above 0: by time instead
  bool save_best = false;                 // after an evaluation with the best metric so far
  std::atomic<bool>* save_now = nullptr;  // set by a signal handler: saves after the current update and is reset
  std::optional<LoopPosition> resume;     // continues there; the session must be restored
  Trace* trace = nullptr;                 // records the phases of the loop
  int64_t compare_weights_every = 0;      // updates between comparisons of the weights of all peers; 0: none
  Peers* peers = nullptr;                 // of the session; they run the same loop and end alike; null: none
};

// Returns the loader options of the training samples, from the first update on.
LoaderOptions MakeLoaderOptions(const TrainOptions& options);

// A report or an evaluation: one line of metrics.jsonl.
struct TrainEvent {
  enum class Kind : uint8_t { kStep, kEval } kind = Kind::kStep;
  int64_t step = 0;
  double epoch = 0;    // fractional
  double seconds = 0;  // of the loop, including earlier runs that this one continues
  StepReport report;   // kStep, and the three below
  double samples_per_second = 0;
  double data_wait = 0;  // share of the time since the last report
  ResourceReading resources;
  std::vector<Outlier> outliers;  // kStep: since the last report
  EvalMetrics eval;               // kEval
};

// Watches and saves a run. The loop calls it on its thread; the default methods do nothing.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnEvent(const TrainEvent& event) {}
  // Called before update number `update`, counted from 1, on `batch`.
  virtual absl::Status OnBatch(int64_t update, const Batch& batch) { return absl::OkStatus(); }
  // Called if the gradient of the first update is not finite. `where` names its origin (FindNonFinite).
  virtual void OnNotFinite(const std::string& where) {}

  // Returns true if Save is implemented.
  virtual bool saves() const { return false; }
  // Saves the state for continuing the run: between two updates, and at the end, also after an error that left the
  // session unchanged. Called twice for one step only if the reason differs.
  virtual void Save(const LoopPosition& position, SaveReason reason) {}
};

// Runs the loop. `eval.dataset` may be null.
absl::StatusOr<TrainResult> Train(Session& session, const TrainData& train, const TrainData& eval,
                                  const TrainOptions& options, TrainObserver& observer);

}  // namespace onnxtrain
