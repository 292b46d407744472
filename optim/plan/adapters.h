// Plans low-rank adapters (LoRA) beside the products of a model: new ones, or those of files.
#pragma once

#include <map>
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

// Returns true if `train` names the weight: a module trains whole or has an adapter, as in PEFT.
bool TrainsWhole(const TrainConfig& config, const LowRankTarget& target);

// Returns the targets of adapters. Packed projections are whole if a genai_config.json beside the model names a type
// whose program in transformers has packed modules.
std::vector<LowRankTarget> ListAdapterTargets(const OnnxModel& model);

struct AdapterPlan {
  std::vector<LowRankUpdate> updates;    // in the order of the nodes
  std::vector<LeftOutProduct> left_out;  // products that all-linear would adapt if they were targets
  // Weights of the model that the adapters replace, by name and as the graph stores them. They train whole.
  std::map<std::string, HostTensor> whole;
};

// Returns the updates that lora_target and lora_rank ask for, with initial values drawn from the run's seed: A as
// lora_init says, B zero; or those of the adapters that are read. Empty without both. Fails on a rank that is no
// positive number or exceeds a side of a weight, and on a pattern that matches no target; the message lists modules
// that would match.
absl::StatusOr<AdapterPlan> PlanAdapters(const TrainConfig& config, const OnnxModel& model);

// An adapter with the factor of its update in a sum.
struct WeightedAdapter {
  std::string path;
  double weight = 1;
};

// Parses the values of `adapter`: PATH, PATH=W, or PATH*W+PATH*W….
absl::StatusOr<std::vector<WeightedAdapter>> ParseAdapters(const std::vector<std::string>& texts);

// Fails if a run would train a sum of adapters: training continues one.
absl::Status CheckTrainsOneAdapter(const TrainConfig& config);

// Reads adapters and returns the weighted sum of their updates: A stacked, B stacked with scales and weights folded in.
// Fails, naming the file, on modules that the model does not have or that have other shapes, all in one message.
absl::StatusOr<AdapterPlan> ReadAdapters(const std::vector<std::string>& texts, const OnnxModel& model);

// Returns the last components of the modules, each once: "q_proj, k_proj, … (14 in all)".
std::string ListTargetNames(const std::vector<LowRankTarget>& targets);

// Describes the plan for users: how many modules, ranks, values, whole weights.
std::string DescribeAdapters(const AdapterPlan& plan);

}  // namespace onnxtrain
