// The largest micro-batch that fits the memory, from plans alone: nothing is tried until it runs out of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/memory/policy.h"
#include "optim/plan/step_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Times a micro-batch for choices that depend on the machine.

// Returns forward and backward pass of a micro-batch of options.micro_batch samples.
absl::StatusOr<Graph> BuildMicroGraph(PreparedModels& models, const SessionOptions& options);

// Times forward and backward pass of one micro-batch with the recomputation of a session that holds `session_bytes`
// beside its programs.
class MicroTimer {
 public:
  // The graph and the backend must outlive it.
  MicroTimer(const Graph& graph, const RecomputeSpec& recompute, int64_t session_bytes, Backend& backend)
      : graph_(graph), recompute_(recompute), session_bytes_(session_bytes), backend_(backend) {}

  // Returns the seconds of several runs, the fastest first. Each call allocates and frees its own memory.
  absl::StatusOr<std::vector<double>> Time(DType compute) const;

 private:
  const Graph& graph_;
  const RecomputeSpec recompute_;
  const int64_t session_bytes_;
  Backend& backend_;
};

// Searches the largest micro-batch that fits, from plans alone.

// Bytes that a session with this micro-batch would hold when it trains in global batches of `global_batch` samples.
// Nothing is allocated.
absl::StatusOr<SessionMemory> PlannedMemory(std::shared_ptr<PreparedModels> models, Backend& backend,
                                            SessionOptions options, int64_t micro_batch, int64_t global_batch);

// The largest size from 1 to `most` with peak(size) ≤ limit, peak being a nearly linear function that grows: a line
// through two sizes gives the first guess, bisection the rest. 0 where not even 1 fits. Errors are those of `peak`.
absl::StatusOr<int64_t> LargestFitting(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit,
                                       int64_t most);

// Bytes of that many samples as tensors.
int64_t BatchBytes(const TrainData& data, int64_t samples);

// Fails if not even the columns of one batch fit into memory.
absl::Status CheckBatchFits(const Dataset& dataset, int64_t samples);

// The largest micro-batch of at most `most` samples whose plan fits the memory budget, or what the device has free,
// with a margin, in global batches of `global_batch` samples (0: one micro-batch). 0 where not even one sample fits.
absl::StatusOr<int64_t> LargestMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                          const SessionOptions& options, int64_t most, int64_t global_batch);

// The fewest micro-batches of at most `batch.global` and `samples` samples whose plan fits. All are equal but the last,
// which may be smaller: another size takes programs of its own. The global batch stays.
absl::StatusOr<BatchPlan> FitMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                        const SessionOptions& options, const BatchPlan& batch, int64_t samples);

// What is planned, and for what.
struct BudgetedModel {
  std::shared_ptr<PreparedModels> models;
  Backend& backend;
};

// The least `memory_budget` with which the plan of the whole run fits, in whole MiB.
absl::StatusOr<int64_t> FindLeastBudget(const BudgetedModel& model, SessionOptions options, int64_t global_batch);

// Makes the plan of the whole run fit options->recompute.memory_budget: where it does not, and `config` leaves the size
// of micro-batches open, chooses the fewest with which it does, and returns a line that tells it. Where nothing does,
// the error names the least budget that is enough.
absl::StatusOr<std::string> FitBudget(const TrainConfig& config, const BudgetedModel& model, int64_t samples,
                                      SessionOptions* options, BatchPlan* batch);

// The bytes that the budget has left beside a plan that recomputes nothing; 0 where that does not fit.
absl::StatusOr<int64_t> FindRoom(const BudgetedModel& model, SessionOptions options, int64_t global_batch);

}  // namespace onnxtrain
