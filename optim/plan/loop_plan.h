// Plans the loop of a run: updates, order of the samples, progress lines, evaluations, saves.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/training_data.h"

namespace onnxtrain {

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
