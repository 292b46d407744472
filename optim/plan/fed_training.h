// A session for a program that hands over its own batches: no data is opened, and the program runs the loop.
//
//   auto training = PrepareFedTraining(config, model, {}, MakeBackend);
//   for (...) {
//     auto batch = training->batches.Fill(views, true);
//     training->session->Step(**batch);
//   }
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/fed_batches.h"
#include "optim/plan/precision.h"
#include "optim/plan/step_plan.h"
#include "optim/plan/training_run.h"
#include "optim/step/session.h"

namespace onnxtrain {

// What the program says of a sample, without the batch axis. Everything may be left out that follows from the model.
struct FedSample {
  std::map<std::string, Type> inputs;  // shapes of inputs with free dimensions
  std::map<std::string, Type> labels;  // by FedTensor::name; none: those that the loss of the model's output takes
  // Axes of samples whose extents differ between batches, by tensor: one, or two one behind the other. The shapes have
  // the greatest extents, which are the same for all.
  std::map<std::string, std::vector<size_t>> varying;
};

struct FedTraining {
  TrainConfig config;
  BatchPlan batch;
  OptimizerChoice optimizer;
  PrecisionChoice precision;
  std::vector<std::string> notes;  // what was decided, for people
  FedBatches batches{{}};
  std::shared_ptr<PreparedModels> models;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Session> session;  // declared after the backend, which must outlive it
};

// Makes the decisions of PrepareTraining that need no data. The learning rate may be changed at any time
// (Session::SetPlateau). config.max_steps is the length of schedules; the program may run more updates.
absl::StatusOr<FedTraining> PrepareFedTraining(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                               const FedSample& sample, const BackendFactory& make_backend);

}  // namespace onnxtrain
