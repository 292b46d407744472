// Everything of a training run before its first step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/prepare.h"
#include "optim/session.h"
#include "optim/trainer.h"
#include "tools/onnxtrain/common.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/output_folder.h"
#include "tools/onnxtrain/precision.h"
#include "tools/onnxtrain/require.h"
#include "tools/onnxtrain/train_plan.h"

namespace onnxtrain::cli {

struct TrainSetup {
  std::shared_ptr<const OnnxModel> model;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<OutputFolder> folder;
  std::unique_ptr<Session> session;  // declared behind the backend, which must outlive it
  bool synthetic = false;

  OpenedData data, eval;             // eval.bound.dataset is null where there is none
  std::string data_text, eval_text;  // path, or how it was made
  LossSpec loss_spec;
  TrainData train_data, eval_data;
  TrainOptions options;
  std::vector<Requirement> requirements;

  BatchPlan batch;
  StepPlan steps;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  std::optional<Plateau> plateau;       // where the schedule is one
  PrecisionChoice precision;
  WeightOrigin origin;
  std::vector<std::string> surgery;  // what was done to the model, a line each
  std::vector<std::string> fresh;    // weights of a new head
  double unscaled_lr = 0;               // before --lr-scale
  std::string rate_text;                // where the learning rate comes from
  std::vector<std::string> rate_lines;  // rates of single weights
  RunFacts facts;
  int threads = 1;
  int64_t resident_at_start = 0;        // bytes of the process before anything was read

  bool has_eval() const { return eval_data.dataset != nullptr; }
  int64_t trained_parameters() const;
};

// From the flags. Opens and locks the output folder, leaving an old run in it untouched.
absl::StatusOr<std::unique_ptr<TrainSetup>> SetUpTraining();

// Flag values as this run has them, for flags whose default depends on the run.
std::vector<FlagDefault> Resolved(const TrainSetup& setup);

}  // namespace onnxtrain::cli
