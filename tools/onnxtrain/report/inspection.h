// What `inspect` finds in a model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/weight_origin.h"
#include "optim/step/prepare.h"
#include "tools/onnxtrain/report/operator_support.h"

namespace onnxtrain::cli {

struct Inspection {
  std::shared_ptr<const OnnxModel> model;
  std::map<std::string, Type> outputs;  // by name, at the extents in `shapes`; empty where the import failed
  std::map<std::string, Shape> shapes;  // by input, with values for free dimensions
  std::vector<OperatorSupport> operators;
  std::map<std::string, int> recognized;   // composites that replaced written forms, by operator
  std::map<std::string, int> elementwise;  // forms that kernels for elementwise regions compute as they are
  std::vector<std::string> near_misses;    // what looks like a composite and is none, and why
  // The backends that were loaded: cpu, and torch where it is asked for, where there may be a GPU for it, or where cpu
  // cannot run everything. Loading libtorch takes longer than most inspections.
  std::vector<std::string> looked_at;
  std::map<std::string, std::string> backends;  // of those: "" or why it cannot run the training step
  std::vector<std::string> problems;            // each prevents training
  std::vector<std::string> quirks;
  std::vector<WeightDecision> weights;
  ModelOrigin origin;
  std::string loss;          // chosen by auto without labels; "" where it cannot choose
  std::string loss_problem;  // why not
  // Per sample; 0: unknown.
  double forward_flops = 0, training_flops = 0, activation_bytes = 0;
  double parameter_bytes = 0;
};

// Inspects config.model; reads the fields about model, loss, dimensions and backend.
absl::StatusOr<Inspection> Inspect(const TrainConfig& config);

}  // namespace onnxtrain::cli
