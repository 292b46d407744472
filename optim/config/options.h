// Options of a choice by name, as --lr-scheduler and --loss take them: "step:size=1000,gamma=0.5",
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
  double otherwise;  // its value where it is not given; NaN: see the text of its owner
  double min, max;
  bool list = false;  // several values, ascending
};

// The default of an option whose owner finds one by itself.
inline constexpr double kOpenOption = std::numeric_limits<double>::quiet_NaN();

using Options = std::map<std::string, std::vector<double>>;  // those that were given, by name

// "size=1000,gamma=0.5". An error names what is unknown, out of range or missing; `owner` is what has the options.
absl::StatusOr<Options> ParseOptions(std::string_view owner, std::span<const NumberOption> known,
                                     const std::string& text);

// The number that was given, else `otherwise`.
double OptionOr(const Options& options, std::string_view name, double otherwise);

}  // namespace onnxtrain
