// Requirements on the result of a run: METRIC>=X.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain::cli {

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
