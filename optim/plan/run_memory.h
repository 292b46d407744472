// Plans the memory of a whole run: what it holds besides the session, and choices that make it fit a budget.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "frontend/data/load/loader.h"
#include "optim/plan/training_run.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// The number of evaluation samples that the report of a run predicts.
struct ReportedSamples {
  int64_t most = 0;   // limited so that predictions take bounded time and memory; 0: none
  int64_t batch = 0;  // samples of one prediction; 0: none
};

// Plans at most `most` samples, in batches of at most `micro_batch`. `fixed_batch`: as in SessionOptions.
ReportedSamples PlanReportedSamples(const LossChoice& loss, const std::vector<FeedSpec>& specs, int64_t most,
                                    int64_t micro_batch, int64_t fixed_batch);

// Returns the bytes that a copy of the state may take if there is no budget: a share of the free memory.
int64_t RoomForCopy();

// Sets the memory that a session with these options counts for its caller: samples and batches in memory, saves, and
// the batches of an evaluation. Sets run->save, for which `room` bytes are free for a copy of the state.
void CountCallerMemory(const PreparedModel& prepared, int64_t room, SessionOptions* options, TrainingRun* run);

// Like CountCallerMemory, for a program that owns its batches: counts only saves to the folder of the run, if it has
// one.
void CountSaves(SessionOptions* options, TrainingRun* run);

// Takes the first rung of the memory ladder on which a run on so many samples fits its budget (FitBudget): sets the
// options, the batch and a line of run->memory_lines.
absl::Status TakeFittingRung(int64_t samples, SessionOptions* options, TrainingRun* run);

// Makes the plan of the whole run fit `memory_budget`. If it does not fit, chooses the fewest micro-batches that do; if
// their size was specified, fails and names the smallest sufficient budget. Then lets saves copy the state if the
// budget has room for it. Without a budget, saves copy a state that is small relative to the free memory.
absl::Status FitMemoryBudget(const PreparedModel& prepared, SessionOptions* options, TrainingRun* run);

}  // namespace onnxtrain
