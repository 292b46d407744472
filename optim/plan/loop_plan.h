// What the loop of a run does: updates, order of the samples, reports, evaluations, saves.
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
// As the configuration has it, but samples whose order the model depends on keep it, and pictures that keep their sizes
// are grouped by them, unless that was decided: a batch of many sizes takes long.
OrderChoice ChooseOrder(const TrainConfig& config, const BoundData& data);

// The updates of a run on the samples of `data`.
StepPlan PlanSteps(const TrainConfig& config, const TrainingData& data, int64_t global_batch,
                   const TokenBudget& tokens = {});

// Everything but the mixing of samples, the monitor and the schedule.
TrainOptions PlanLoop(const TrainConfig& config, const StepPlan& steps, const OrderChoice& order,
                      const TokenBudget& tokens, int64_t global_batch);

// Sets what compares evaluations in `options`, where something does. Fails where there are none, or where they do not
// have config.monitor. `metrics`: of the run.
absl::Status SetMonitor(const TrainConfig& config, const LossChoice& loss, const std::vector<std::string>& metrics,
                        bool has_eval, TrainOptions* options);

// Null where the schedule is none. Sets options->plateau.
std::unique_ptr<Plateau> MakePlateau(const OptimizerChoice& optimizer, TrainOptions* options);

}  // namespace onnxtrain
