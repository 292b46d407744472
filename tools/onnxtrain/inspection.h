// Everything that `inspect` finds out about a model, before it is shown.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/prepare.h"
#include "tools/onnxtrain/operator_support.h"
#include "tools/onnxtrain/pretrained.h"

namespace onnxtrain::cli {

struct Inspection {
  std::shared_ptr<const OnnxModel> model;
  std::map<std::string, Type> outputs;  // at the extents that were looked at, by name; empty where import failed
  std::map<std::string, Shape> shapes;  // the extents taken for free dimensions, by input
  std::vector<OperatorSupport> operators;
  std::map<std::string, std::string> backends;  // "" or why it cannot run the training step
  std::vector<std::string> problems;            // each stands in the way of training
  std::vector<std::string> quirks;
  std::vector<WeightDecision> weights;
  WeightOrigin origin;
  std::string loss;          // what auto takes without knowing labels; "" where it cannot tell
  std::string loss_problem;  // why not
  // Per sample; 0: unknown.
  double forward_flops = 0, training_flops = 0, activation_bytes = 0;
  double parameter_bytes = 0;
};

// From --model and the flags about model, loss and dimensions.
absl::StatusOr<Inspection> Inspect();

}  // namespace onnxtrain::cli
