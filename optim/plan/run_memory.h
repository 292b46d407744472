// The memory of a whole run: what it holds besides the session, and choices that make its plan fit a budget.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "frontend/data/load/loader.h"
#include "optim/plan/training_run.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// How many evaluation samples the report of a run predicts, and how many of them at once.

struct ReportedSamples {
  int64_t most = 0;   // of which predictions take bounded time and memory; 0: none
  int64_t batch = 0;  // samples of one prediction; 0: none
};

// At most `most` samples, in batches of at most `micro_batch`. `fixed_batch`: as in SessionOptions.
ReportedSamples PlanReportedSamples(const LossChoice& loss, const std::vector<FeedSpec>& specs, int64_t most,
                                    int64_t micro_batch, int64_t fixed_batch);

// Bytes that a copy of the state may take without a budget: a share of the free memory.
int64_t RoomForCopy();

// Sets what a session with these options counts and plans for its caller: samples and batches in memory, saves, and
// the batches of an evaluation. Sets run->save, of which it takes `room` bytes of a copy as free.
void CountCallerMemory(const PreparedModel& prepared, int64_t room, SessionOptions* options, TrainingRun* run);

// The same for a program that hands over batches, which are its own: the saves to the folder of the run, if it has one.
void CountSaves(SessionOptions* options, TrainingRun* run);

// Makes the plan of the whole run fit `memory_budget`. Where it does not, chooses the fewest micro-batches with which
// it does, unless their size was given, or names the least budget that is enough. Then has saves copy the state if the
// budget has room for it. Without a budget, saves copy a state that is small beside the free memory.
absl::Status FitMemoryBudget(const PreparedModel& prepared, SessionOptions* options, TrainingRun* run);

}  // namespace onnxtrain
