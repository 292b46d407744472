// Flags are the fields of TrainConfig (optim/config/config.h) with dashes: this is the way between the two. The tool
// has one more, a requirement on the result of a run: METRIC>=X.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "tools/onnxtrain/flags/flags_prepass.h"

namespace onnxtrain::cli {

// The flags of a subcommand (of ConfigTask), for the pre-pass.
std::vector<FlagSpec> ListFlags(unsigned task);

// Parses and validates, for a process that is one of `ranks`. Errors name flags, and the flag file that a value comes
// from.
absl::StatusOr<TrainConfig> ParseConfig(const Arguments& args, int ranks = 1);

// Our flag, with its value, for each name of another library: "--learning-rate is --lr 0.1"; and what follows from
// them.
std::vector<std::string> DescribeSynonyms(const Arguments& args, int ranks);

// Replaces names of fields in a message of the library by flags: "`batch_size` 10" → "--batch-size 10".
std::string FieldsToFlags(std::string_view message);

// Flags of `resolved` that `config` does not specify: "--lr 0.001", "--no-drop-last".
std::vector<std::string> DefaultFlags(const TrainConfig& config, const TrainConfig& resolved);

// The page of `onnxtrain COMMAND --help`, without its heading: flags by group, with defaults.
std::string FlagHelp(unsigned task);

struct Requirement {
  std::string metric, comparison;  // "accuracy", ">="
  double bound = 0;
};

// Comparisons are >=, <=, >, <, ==.
absl::StatusOr<Requirement> ParseRequirement(const std::string& text);

// Returns nullopt where there is no such metric. NaN meets no requirement.
using MetricFn = std::function<std::optional<double>(const std::string& metric)>;

// One line per requirement that is not met, "accuracy is 0.93, not >= 0.97".
std::vector<std::string> FindUnmetRequirements(const std::vector<Requirement>& requirements, const MetricFn& metric);

}  // namespace onnxtrain::cli
