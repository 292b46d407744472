// Finds the largest micro-batch that fits the memory, from memory plans instead of trial runs; times micro-batches.
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

// Returns the graph of the forward and backward pass of a micro-batch of options.micro_batch samples.
absl::StatusOr<Graph> BuildMicroGraph(PreparedModels& models, const SessionOptions& options);

// Times the forward and backward pass of one micro-batch, with the recomputation of a session that holds
// `session_bytes` besides its programs.
class MicroTimer {
 public:
  // The graph and the backend must outlive the timer.
  MicroTimer(const Graph& graph, const RecomputeSpec& recompute, int64_t session_bytes, Backend& backend)
      : graph_(graph), recompute_(recompute), session_bytes_(session_bytes), backend_(backend) {}

  // Returns the seconds of several runs, fastest first. Each call allocates and frees its memory.
  absl::StatusOr<std::vector<double>> Time(DType compute) const;

 private:
  const Graph& graph_;
  const RecomputeSpec recompute_;
  const int64_t session_bytes_;
  Backend& backend_;
};

// Returns the bytes that a session with this micro-batch would hold in training with global batches of `global_batch`
// samples. Allocates nothing.
absl::StatusOr<SessionMemory> PlannedMemory(std::shared_ptr<PreparedModels> models, Backend& backend,
                                            SessionOptions options, int64_t micro_batch, int64_t global_batch);

// Returns the largest size from 1 to `most` with peak(size) ≤ limit, or 0 if even 1 does not fit. `peak` must increase
// and be nearly linear: a line through two sizes gives the first guess, bisection the rest. Returns the errors of
// `peak`.
absl::StatusOr<int64_t> LargestFitting(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit,
                                       int64_t most);

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the bytes of `samples` samples as tensors.
int64_t BatchBytes(const TrainData& data, int64_t samples);

// Fails if the columns of `samples` samples do not fit into memory.
absl::Status CheckBatchFits(const Dataset& dataset, int64_t samples);

// Returns the largest micro-batch of at most `most` samples whose plan fits the memory budget, or the free device
// memory with a margin, in global batches of `global_batch` samples (0: one micro-batch). Returns 0 if not even one
// sample fits.
absl::StatusOr<int64_t> LargestMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                          const SessionOptions& options, int64_t most, int64_t global_batch);

// Splits the global batch into the fewest micro-batches, of at most `samples` samples, whose plan fits. All have equal
// size except the last, which may be smaller and then needs separate programs.
absl::StatusOr<BatchPlan> FitMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                        const SessionOptions& options, const BatchPlan& batch, int64_t samples);

// The model and the backend that a memory budget is planned for.
struct BudgetedModel {
  std::shared_ptr<PreparedModels> models;
  Backend& backend;
};

// Returns a session that has planned all programs of a run. Allocates nothing.
absl::StatusOr<std::unique_ptr<Session>> PlanSession(const BudgetedModel& model, SessionOptions options,
                                                     int64_t global_batch);

// The plan of the whole run with the smallest `memory_budget`, in whole MiB, that it fits.
struct LeastPlan {
  int64_t budget = 0;
  std::unique_ptr<Session> session;
};
absl::StatusOr<LeastPlan> PlanLeast(const BudgetedModel& model, SessionOptions options, int64_t global_batch);
absl::StatusOr<int64_t> FindLeastBudget(const BudgetedModel& model, const SessionOptions& options,
                                        int64_t global_batch);

// Returns the bytes of the budget that a plan without recomputation leaves free; 0 if that plan does not fit.
absl::StatusOr<int64_t> FindRoom(const BudgetedModel& model, SessionOptions options, int64_t global_batch);

}  // namespace onnxtrain
