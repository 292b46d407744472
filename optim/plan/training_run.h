// Everything of a training run before its first step. PrepareTraining makes every decision, each in a function of its
// own whose result is a part of the run.
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
#include "optim/plan/loop_plan.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/plan/precision.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/target_unit.h"
#include "optim/plan/training_data.h"
#include "optim/record/checkpoint/save_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The parts of a run. Movable; nothing in it points to itself.
struct TrainingRun {
  // As it was given, with what the model and the folders of the data say where nobody else does. Decisions are in the
  // other parts, and in ResolveConfig.
  TrainConfig config;
  TrainingData data;
  OrderChoice order;
  BatchPlan batch;     // with max_tokens_per_batch: of the longest samples
  TokenBudget tokens;  // on where other lengths make other batches
  StepPlan steps;
  OptimizerChoice optimizer;
  PrecisionChoice precision;
  int64_t threads = 0;                // as TrainConfig::threads: chosen where that is 0 and the model has little work
  std::optional<RateTest> rate_test;  // with lr_find
  std::vector<AutoChoice> choices;    // with automatic
  int64_t state_bytes = 0;            // of a checkpoint
  SavePlan save;
  SessionOptions session_options;         // of `session`, but for its rate
  std::vector<std::string> memory_lines;  // what its plan chose so that it fits the budget
  RunFacts facts;
  std::string loss_text;  // which loss was chosen, and why
  TrainData train, eval;
  CallerBatches batches{{}};                    // of a program that hands them over
  std::optional<ScaledTargets> scaled_targets;  // with scale_targets
  std::unique_ptr<Plateau> plateau;             // where the schedule is one; options refer to it
  TrainOptions options;
  std::vector<std::string> warnings;  // about the data
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Session> session;  // declared after the backend, which must outlive it

  bool has_eval() const { return eval.dataset != nullptr; }
  int64_t trained_parameters() const;
  int compute_threads() const;
  // Weights of the session, or of a checkpoint of the run, as the exported model has them: with the unit of scaled
  // targets folded back.
  absl::StatusOr<std::map<std::string, HostTensor>> ToExport(std::map<std::string, HostTensor> weights) const;
};

using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>(const TrainConfig& config)>;

// What a run is prepared for, beside its configuration.
struct RunRequest {
  SampleSource samples;
  int rank = 0, ranks = 1;  // one of several processes that train together
  bool plans = false;       // every choice but a learning rate from data is made, and no session
};

// Validates the configuration and makes every automatic decision: loss, binding, batches, learning rates, precision,
// micro-batch, recomputation. `make_backend` is called when everything that needs no backend has succeeded.
absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                            const BackendFactory& make_backend, const RunRequest& request = {});
// The same with config.model and MakeBackend.
absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config);

// The configuration with what was decided about order, batch normalization, metrics and threads.
TrainConfig WithDecisions(const TrainingRun& run);
// The configuration with every decision of the run in place of "auto", and every field with an effect specified:
// repeats the run.
TrainConfig ResolveConfig(const TrainingRun& run);

}  // namespace onnxtrain
