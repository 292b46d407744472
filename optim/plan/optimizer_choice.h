// Chooses the update rule of a run, its schedule and its learning rates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/interop/training_info.h"
#include "optim/config/config.h"
#include "optim/loop/lr_schedule.h"
#include "optim/plan/learning_rates.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Makes rule, decay, clipping and hyperparameters, with the rule's defaults for those that the configuration leaves
// open. The learning rate is chosen later (ChooseOptimizer).
OptimizerSpec MakeOptimizer(const TrainConfig& config);
// Like MakeOptimizer, but loads the rule of onnx:FILE, or uses the model's training_info, `info`, if it exists and no
// field asks for another rule. With that rule, gradients are clipped only if a field asks for it.
absl::StatusOr<OptimizerSpec> LoadOptimizer(const TrainConfig& config, const OnnxModel& model,
                                            const std::optional<TrainingInfo>& info);
// Makes the schedule, without total_steps.
absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config);

struct OptimizerChoice {
  OptimizerSpec spec;
  ScheduleSpec schedule;
  ModelOrigin origin;
  std::vector<std::string> rates;       // config.lr, or the rates that a range test replaced it by
  double unscaled_lr = 0;               // before lr_scale
  std::string rate_text;                // how the learning rate was chosen
  std::vector<std::string> rate_lines;  // rates of single weights
};
// Chooses rule, schedule and rates. `rates`: as config.lr; `fresh`: weights of a new head; total_steps: updates of the
// schedule.
absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const std::vector<std::string>& rates,
                                                const OnnxModel& model, const PreparedModel& prepared,
                                                const std::vector<std::string>& fresh, int64_t global_batch,
                                                int64_t total_steps);

}  // namespace onnxtrain
