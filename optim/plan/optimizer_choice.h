// The rule of a run, its schedule and its learning rates.
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

// Rule, decay, clipping and the rule's numbers; the learning rate is chosen later (ChooseOptimizer). With the rule's
// own defaults where the configuration has none.
OptimizerSpec MakeOptimizer(const TrainConfig& config);
// The same with the rule of onnx:FILE loaded, or with that of `info`, the training_info of the model, where it has one
// and no field asks for another: then gradients are clipped only if that is asked for, as in the algorithm of the file.
absl::StatusOr<OptimizerSpec> LoadOptimizer(const TrainConfig& config, const OnnxModel& model,
                                            const std::optional<TrainingInfo>& info);
// Without total_steps.
absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config);

struct OptimizerChoice {
  OptimizerSpec spec;
  ScheduleSpec schedule;
  ModelOrigin origin;
  std::vector<std::string> rates;       // config.lr, or what a test of rates has put in place of it
  double unscaled_lr = 0;               // before lr_scale
  std::string rate_text;                // where the learning rate comes from
  std::vector<std::string> rate_lines;  // rates of single weights
};
// `rates`: as config.lr; `fresh`: weights of a new head; total_steps: updates of the schedule.
absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const std::vector<std::string>& rates,
                                                const OnnxModel& model, const PreparedModel& prepared,
                                                const std::vector<std::string>& fresh, int64_t global_batch,
                                                int64_t total_steps);

}  // namespace onnxtrain
