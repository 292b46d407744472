// Chooses the trained weights.
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
  std::string alias;  // as in ImportedWeight
  bool trained = false;
  std::string why;  // "matches `freeze` conv*", "BatchNorm statistics", "reaches no differentiable loss", …
};

// Returns the weight's name in the exported module, with the name in the file behind it if that differs.
std::string DisplayName(const WeightDecision& weight);

// Returns a decision per weight of the imported model, in graph order, and sets the kinds of the graph's inputs to
// kParameter or kFrozen. Fails on a glob that matches nothing.
absl::StatusOr<std::vector<WeightDecision>> ChooseTrainable(ImportedModel* model, const TrainableSpec& spec);

}  // namespace onnxtrain
