// Chooses which weights are trained.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/step/fixed_tables.h"

namespace onnxtrain {

struct TrainableSpec {
  std::vector<std::string> train, freeze;  // globs (weight_globs.h); freeze wins
  // Names of adapters and of a new head. If there are any, other weights are fixed unless `train` names them.
  std::vector<std::string> adapters;
};

// The reason why a weight is trained or frozen. The first four follow from the model, the others from `train` and
// `freeze`.
enum class WeightReason : uint8_t {
  kStatistics,  // running statistics
  kNotFloat,    // not a floating-point tensor
  kUnreached,   // reaches no output through differentiable operators
  kDefault,     // trained by default
  kMatched,     // matches `train`
  kFrozen,      // matches `freeze`
  kUnmatched,   // matches no `train`
  kBuffer,      // kinds of fixed weights, from here on; trained only if `train` matches
  kConstant,
  kStandardizer,
  kSinusoids,  // IsSinusoidTable
  kMask,       // IsAttentionMask
  kGrid,       // IsCoordinateTable
  kPowers,     // IsPowerTable
  kSlopes,     // IsSlopeTable
  kFilters,    // fixed_tables.h
  kBase,       // the model beside adapters
};

struct WeightDecision {
  std::string name;
  Type type;
  std::string consumer;
  std::string alias;  // as in ImportedWeight
  bool trained = false;
  WeightReason reason = WeightReason::kDefault;
  std::string why;  // the same for users: "matches `freeze` conv*", "running statistics", …
};

// Returns the weight's name in the exported module, followed by the name in the file if that differs.
std::string DisplayName(const WeightDecision& weight);

// Returns a decision per weight of the imported model, in graph order, and sets the kinds of the graph's inputs to
// kParameter or kFrozen. Weights in half precision that are to be trained keep kFrozen. `tables` caches the fixed
// tables of all imports of the model. Fails on a glob that matches nothing.
absl::StatusOr<std::vector<WeightDecision>> ChooseTrainable(ImportedModel* model, const TrainableSpec& spec,
                                                            FixedTables* tables);

}  // namespace onnxtrain
