// Prepares a training run up to its first step. PrepareTraining makes every decision, each in a separate function whose
// result is a member of the run.
//
//   auto run = PrepareTraining(config);
//   auto result = Train(*run->session, run->train, run->eval, run->options, observer);
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
#include "optim/loop/trainer.h"
#include "optim/plan/auto_choices.h"
#include "optim/plan/caller_samples.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/plan/reference_scores.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/training_data.h"
#include "optim/record/checkpoint/save_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The parts of a run. Movable; nothing in it points to itself.
struct TrainingRun {
  // The given configuration, completed from the model and the data folders. Decisions are in the other members, and in
  // ResolveConfig.
  TrainConfig config;
  TrainingData data;
  OrderChoice order;
  BatchPlan batch;     // with max_tokens_per_batch, the plan for the longest samples
  TokenBudget tokens;  // on if the batch size depends on the length
  StepPlan steps;
  OptimizerChoice optimizer;
  PrecisionChoice precision;
  int64_t threads = 0;                // as TrainConfig::threads; chosen if that is 0 and the model has little work
  std::optional<RateTest> rate_test;  // set with lr_find
  std::vector<AutoChoice> choices;    // the choices of auto fields
  int64_t state_bytes = 0;            // size of a checkpoint
  SavePlan save;
  SessionOptions session_options;         // options of `session`, but with the rate before lr_find
  std::vector<std::string> memory_lines;  // choices that make the plan fit the budget
  RunFacts facts;
  std::string loss_text;  // which loss was chosen, and why
  TrainData train, eval;
  CallerBatches batches{{}};                    // batches of a program that passes its own
  ReferenceScores reference;                    // of pairs of answers; empty without
  std::optional<ScaledTargets> scaled_targets;  // set with scale_targets
  std::unique_ptr<Plateau> plateau;             // set if the schedule is a plateau; options refer to it
  TrainOptions options;
  std::vector<std::string> warnings;  // warnings about the data
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Session> session;  // declared after the backend, which must outlive it

  bool has_eval() const { return eval.dataset != nullptr; }
  int64_t trained_parameters() const;
  int compute_threads() const;
  // Converts weights of the session, or of a checkpoint of the run, to those of the exported model: folds the unit of
  // scaled targets back.
  absl::StatusOr<std::map<std::string, HostTensor>> ToExport(std::map<std::string, HostTensor> weights) const;
};

using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>(const TrainConfig& config)>;

// Parameters of PrepareTraining besides the configuration.
struct RunRequest {
  SampleSource samples;
  int rank = 0, ranks = 1;  // one of several processes that train together
  bool plans = false;       // makes every choice except a learning rate from data, but no session
};

// Validates the configuration and makes every automatic decision: loss, binding, batches, learning rates, precision,
// micro-batch, recomputation. Calls `make_backend` after everything that needs no backend has succeeded.
absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                            const BackendFactory& make_backend, const RunRequest& request = {});
// Calls the above with config.model and MakeBackend.
absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config);

// Returns the configuration with the decisions about order, batch normalization, metrics and threads.
TrainConfig WithDecisions(const TrainingRun& run);
// Returns a configuration that repeats the run: it replaces "auto" by the decisions and specifies every field that has
// an effect.
TrainConfig ResolveConfig(const TrainingRun& run);

}  // namespace onnxtrain
