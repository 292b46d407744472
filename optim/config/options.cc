#include "optim/config/options.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Listed(std::span<const NumberOption> options) {
  std::string names;
  for (const NumberOption& o : options) StrAppend(&names, names.empty() ? "" : ", ", o.name);
  return names.empty() ? "it has none" : "it has " + names;
}

absl::StatusOr<std::vector<double>> ParseOption(const NumberOption& option, const std::string& text) {
  std::vector<double> values;
  for (absl::string_view part : absl::StrSplit(text, '/')) {
    double value;
    if (!absl::SimpleAtod(part, &value) || !(value >= option.min && value <= option.max)) {
      return Invalid(option.name, ": expected ",
                     option.max < kInf ? StrCat(option.min, " to ", option.max) : StrCat("at least ", option.min),
                     ", got '", ToStd(part), "'");
    }
    if (!values.empty() && value <= values.back())
      return Invalid(option.name, ": expected ascending numbers, got '", text, "'");
    values.push_back(value);
  }
  if (values.size() > 1 && !option.list) return Invalid(option.name, ": expected one number, got '", text, "'");
  return values;
}

}  // namespace

absl::StatusOr<Options> ParseNumberOptions(std::string_view owner, std::span<const NumberOption> known,
                                           const std::string& text) {
  Options options;
  for (absl::string_view pair : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> given = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto option =
        std::find_if(known.begin(), known.end(), [&](const NumberOption& o) { return o.name == given.first; });
    if (option == known.end()) return Invalid(owner, " has no option '", given.first, "'; ", Listed(known));
    ASSIGN_OR_RETURN(options[given.first], ParseOption(*option, given.second));
  }
  return options;
}

double OptionOr(const Options& options, std::string_view name, double otherwise) {
  const auto it = options.find(std::string(name));
  return it == options.end() ? otherwise : it->second[0];
}

}  // namespace onnxtrain
