// Which weights are trained.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct TrainableSpec {
  std::vector<std::string> train, freeze;  // globs (weight_globs.h); freeze wins
};

struct WeightDecision {
  std::string name;
  Type type;
  std::string consumer;
  bool trained = false;
  std::string why;   // "matches --freeze 'conv*'", "BatchNorm statistics", "reaches no differentiable loss", …
};

// Decides for every weight of the imported model, in graph order, and sets the kinds of the graph's inputs accordingly
// (kParameter or kFrozen). A glob that matches nothing is an error.
absl::StatusOr<std::vector<WeightDecision>> DecideTrainable(ImportedModel* model, const TrainableSpec& spec);

}  // namespace onnxtrain
