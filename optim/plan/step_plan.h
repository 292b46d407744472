// Plans the steps of a run: batches, updates, order of the samples, and the intervals of progress lines, evaluations
// and saves. The functions are pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/sample_order.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"

namespace onnxtrain {

struct OptimizerChoice;
struct TrainingData;

struct BatchPlan {
  int64_t global = 32, micro = 32, accumulation = 1;  // global = micro × accumulation
};
// Plans a batch from the given sizes: two determine the third; one alone keeps the default global batch if it divides
// that. Fails on contradictions.
absl::StatusOr<BatchPlan> PlanBatch(std::optional<int64_t> global, std::optional<int64_t> micro,
                                    std::optional<int64_t> accumulation, int64_t otherwise = BatchPlan().global);
// Plans the batch of the configuration. With micro_batch_size auto, the micro-batch is the whole batch at first.
absl::StatusOr<BatchPlan> PlanBatch(const TrainConfig& config, int64_t otherwise = BatchPlan().global);

struct StepPlan {
  int64_t per_epoch = 1;  // updates
  int64_t epochs = 3;
  int64_t max_steps = 0;  // 0: only the epochs limit the run
  int64_t total = 0;      // updates of the whole run, unless a time limit ends it
};
// Plans the updates. If only `max_steps` is given, derives the epochs from it. `per_epoch` must be above 0.
StepPlan PlanSteps(int64_t per_epoch, std::optional<int64_t> epochs, std::optional<int64_t> max_steps);

// Returns an interval of updates or epochs as a number of updates, at least 1; 0 for an interval of time.
int64_t IntervalSteps(const Interval& interval, int64_t per_epoch);

// Returns the updates between progress lines: about 20 lines per epoch, at most about 60 in all, at least one every 500
// updates.
int64_t AutoLogSteps(const StepPlan& plan);

// Plans batches by tokens (config.max_tokens_per_batch): sets *batch to the number of longest samples that fit, and
// returns the budget for the other lengths. The budget is off without max_tokens_per_batch or if all samples have one
// length, for which *batch is exact. Fails if the data has no tokens, or if a micro-batch does not fit one sample.
absl::StatusOr<TokenBudget> PlanTokens(const TrainConfig& config, const BoundData& data, BatchPlan* batch);

// Describes the budget: "4096 tokens: 8 samples of 512 … 512 samples of 8".
std::string DescribeTokens(const TokenBudget& budget, const std::vector<FeedSpec>& specs);

struct OrderChoice {
  bool shuffle = true, length_grouping = false;
};
// Returns the order of the configuration, with two defaults: samples whose order the model depends on are not shuffled,
// and pictures that keep their sizes are grouped by size, because a batch of many sizes takes long.
OrderChoice ChooseOrder(const TrainConfig& config, const BoundData& data);

// Returns the updates of a run on the samples of `data`.
StepPlan PlanSteps(const TrainConfig& config, const TrainingData& data, int64_t global_batch,
                   const TokenBudget& tokens = {});

// Returns the options of the loop, without sample mixing, monitor and schedule.
TrainOptions PlanLoop(const TrainConfig& config, const StepPlan& steps, const OrderChoice& order,
                      const TokenBudget& tokens, int64_t global_batch);

// Sets in `options` the metric that compares evaluations, if the configuration needs one. Fails if there is no
// evaluation data or if config.monitor is not among its metrics. `metrics` are those of the run.
absl::Status SetMonitor(const TrainConfig& config, const LossChoice& loss, const std::vector<std::string>& metrics,
                        bool has_eval, TrainOptions* options);

// Returns the state of a plateau schedule and points options->plateau to it; returns null for other schedules.
std::unique_ptr<Plateau> MakePlateau(const OptimizerChoice& optimizer, TrainOptions* options);

}  // namespace onnxtrain
