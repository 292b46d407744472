// Everything of a training run before its first step. PrepareTraining runs the stages; each is a function of its
// inputs.
//
//   auto run = PrepareTraining(config);
//   auto result = Train(*run->session, run->train, run->eval, run->options, on_event);
//   auto weights = run->ToExport(*run->session->Weights());
//   Export(*run->data.model, *weights, "trained.onnx");
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/config/unused_fields.h"
#include "optim/loop/lr_range_test.h"
#include "optim/loop/lr_schedule.h"
#include "optim/loop/trainer.h"
#include "optim/plan/auto_choices.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/learning_rates.h"
#include "optim/plan/precision.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/target_unit.h"
#include "optim/record/checkpoint/save_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Stage 1: the model, after surgery, and the data that is bound to it.
struct TrainingData {
  std::shared_ptr<const OnnxModel> model;
  std::shared_ptr<PreparedModels> models;  // imports of it, shared by every stage and the session
  std::vector<std::string> surgery;        // what was done to the model, a line each
  std::vector<std::string> fresh;          // weights of a new head
  LossSpec loss;
  OpenedData train, eval;              // eval.bound.dataset is null where there is none
  std::string train_text, eval_text;   // path, or how it was made
  std::string preprocess_path;         // of the preprocess.json that was read, else ""
  bool synthetic = false;              // samples were made up
  int64_t synthetic_batch = 0;         // and are for steps of so many
  bool eval_is_part_of_train = false;  // both views of one data set

  bool has_eval() const { return eval.bound.dataset != nullptr; }
};

// Opens, binds and splits config.data and eval_data, and applies surgery, which may need the labels. Synthetic samples
// are for steps of `synthetic_batch`; nullopt: of SyntheticBatchSize.
absl::StatusOr<TrainingData> LoadTrainingData(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                              std::optional<int64_t> synthetic_batch);

RunFacts MakeRunFacts(const TrainConfig& config, const TrainingData& data, const LossChoice& loss);

// Stage 2: updates and intervals of the loop.
StepPlan PlanSteps(const TrainConfig& config, const TrainingData& data, int64_t global_batch,
                   const TokenBudget& tokens = {});
TrainOptions PlanLoop(const TrainConfig& config, const StepPlan& steps, int64_t global_batch);

// Stage 3: rule, schedule and learning rates.
struct OptimizerChoice {
  OptimizerSpec spec;
  ScheduleSpec schedule;
  ModelOrigin origin;
  double unscaled_lr = 0;               // before lr_scale
  std::string rate_text;                // where the learning rate comes from
  std::vector<std::string> rate_lines;  // rates of single weights
};
absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const OnnxModel& model,
                                                const PreparedModel& prepared, const std::vector<std::string>& fresh,
                                                int64_t global_batch, int64_t total_steps);

// The result of all stages. Movable; nothing in it points to itself.
struct TrainingRun {
  TrainConfig config;
  TrainingData data;
  BatchPlan batch;     // with max_tokens_per_batch: of the longest samples
  TokenBudget tokens;  // on where other lengths make other batches
  StepPlan steps;
  OptimizerChoice optimizer;
  PrecisionChoice precision;
  std::optional<RateTest> rate_test;  // with lr_find
  std::vector<AutoChoice> choices;    // with automatic
  SavePlan save;
  SessionOptions session_options;         // of `session`, but for its rate
  std::vector<std::string> memory_lines;  // what its plan chose so that it fits the budget
  RunFacts facts;
  TrainData train, eval;
  std::optional<ScaledTargets> scaled_targets;  // with scale_targets
  std::unique_ptr<Plateau> plateau;             // where the schedule is one; options refer to it
  TrainOptions options;
  std::vector<std::string> warnings;  // about the data
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Session> session;  // declared after the backend, which must outlive it

  bool has_eval() const { return eval.dataset != nullptr; }
  int64_t trained_parameters() const;
  // Weights of the session, or of a checkpoint of the run, as the exported model has them: with the unit of scaled
  // targets folded back.
  absl::StatusOr<std::map<std::string, HostTensor>> ToExport(std::map<std::string, HostTensor> weights) const;
};

using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>(const TrainConfig& config)>;

// One of several processes that train together.
struct ProcessRank {
  int rank = 0, size = 1;
  bool plans = false;  // makes every choice but a learning rate from data, and no session
};

// Validates the configuration and makes every automatic decision: loss, binding, batches, learning rates, precision,
// micro-batch, recomputation. `make_backend` is called when everything that needs no backend has succeeded.
absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                            const BackendFactory& make_backend, const ProcessRank& place = {});
// The same with config.model and MakeBackend.
absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config);

// The configuration with every decision of the run in place of "auto", and every field with an effect specified:
// repeats the run.
TrainConfig ResolveConfig(const TrainingRun& run);

}  // namespace onnxtrain
