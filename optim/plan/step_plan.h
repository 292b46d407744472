// The arithmetic of a run: batches, updates, intervals. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/sample_order.h"
#include "optim/config/config.h"

namespace onnxtrain {

struct BatchPlan {
  int64_t global = 32, micro = 32, accumulation = 1;  // global = micro × accumulation
};
// Any two determine the third; one alone keeps the default global batch where that divides. Contradictions are errors.
absl::StatusOr<BatchPlan> PlanBatch(std::optional<int64_t> global, std::optional<int64_t> micro,
                                    std::optional<int64_t> accumulation, int64_t otherwise = BatchPlan().global);
// From the configuration. With micro_batch_size auto the micro-batch is the whole batch for now.
absl::StatusOr<BatchPlan> PlanBatch(const TrainConfig& config, int64_t otherwise = BatchPlan().global);

struct StepPlan {
  int64_t per_epoch = 1;  // updates
  int64_t epochs = 3;
  int64_t max_steps = 0;  // 0: no limit but the epochs
  int64_t total = 0;      // updates of the whole run, unless time ends it
};
// `epochs` not given and `max_steps` given: as many epochs as that takes. `per_epoch` above 0.
StepPlan PlanSteps(int64_t per_epoch, std::optional<int64_t> epochs, std::optional<int64_t> max_steps);

// An interval of updates or epochs as updates, at least 1; 0 for one of time.
int64_t IntervalSteps(const Interval& interval, int64_t per_epoch);

// Updates between progress lines: about 20 lines an epoch, at most about 60 in all, at least one every 500 updates.
int64_t AutoLogSteps(const StepPlan& plan);

// Batches by tokens (config.max_tokens_per_batch).

// Sets *batch to the samples of the longest length that fit the tokens, and returns how many of other lengths do. It is
// off without max_tokens_per_batch and where all samples have one length: *batch holds for all of them then. Fails
// where the data has no tokens, and where a micro-batch takes not one sample.
absl::StatusOr<TokenBudget> PlanTokens(const TrainConfig& config, const BoundData& data, BatchPlan* batch);

// "4096 tokens: 8 samples of 512 … 512 samples of 8".
std::string DescribeTokens(const TokenBudget& budget, const std::vector<FeedSpec>& specs);

}  // namespace onnxtrain
