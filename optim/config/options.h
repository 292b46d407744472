// Parses options of a named choice, as in --lr-scheduler and --loss: "step:size=1000,gamma=0.5",
// "multistep:at=100/200".
#pragma once

#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

struct NumberOption {
  std::string_view name;
  double otherwise;  // its default; NaN: computed by its owner
  double min, max;
  bool list = false;  // several values, ascending
};

// Marks an option whose default its owner computes.
inline constexpr double kOpenOption = std::numeric_limits<double>::quiet_NaN();

using Options = std::map<std::string, std::vector<double>>;  // the specified options, by name

// Parses "size=1000,gamma=0.5". An error names what is unknown, out of range or missing; `owner` names the choice.
absl::StatusOr<Options> ParseNumberOptions(std::string_view owner, std::span<const NumberOption> known,
                                           const std::string& text);

// Returns the specified number, else `otherwise`.
double OptionOr(const Options& options, std::string_view name, double otherwise);

}  // namespace onnxtrain
