// Plans low-rank adapters (LoRA) beside the products of a model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "optim/config/config.h"

namespace onnxtrain {

inline bool HasAdapters(const TrainConfig& config) { return !config.lora_rank.empty() || !config.adapter.empty(); }

// Returns true if `pattern` names the module as PEFT's target_modules do: its whole name, its last components or a
// glob.
bool MatchesModule(const std::string& pattern, const std::string& module);

// Returns the updates that lora_target and lora_rank ask for, in the order of the nodes, with initial values drawn from
// the run's seed: A as lora_init says, B zero; or those of the adapter that is read. Empty without both. Fails on a
// rank that is no positive number or exceeds a side of a weight, and on a pattern that matches no target; the message
// lists modules that would match.
absl::StatusOr<std::vector<LowRankUpdate>> PlanAdapters(const TrainConfig& config, const OnnxModel& model);

// Describes the updates for users: how many modules, ranks, trained values.
std::string DescribeAdapters(const std::vector<LowRankUpdate>& updates);

}  // namespace onnxtrain
