// Parses command lines. Flags are the fields of TrainConfig (optim/config/config.h) with dashes; the tool adds
// requirements on the result of a run, METRIC>=X.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain::cli {

// A flag for ParseArguments, which is driven by such tables alone.
struct FlagSpec {
  std::string name;  // with underscores
  bool boolean = false;
  bool repeatable = false;
  std::string value = {};  // placeholder: "FILE"; in brackets, as "[auto|PATH]", if the value is optional

  // Returns the value of a flag given without one, the first in its placeholder; "" if a value is required.
  std::string implied() const;
};

struct CommandSpec {
  std::string name;
  std::vector<FlagSpec> flags;
  std::string words = {};  // the repeatable flag that collects words without a flag; "": such words are errors
};

struct SpecifiedFlag {
  std::string name;            // with underscores
  std::string value;           // "true" or "false" for switches; "" leaves the default
  std::string place;           // the flag file; "" for the command line
  std::string written = {};    // the name that was given if it is a synonym of another library; with underscores
  std::string theirs = {};     // the value that was given for the synonym
  std::string not_value = {};  // the value excluded by a synonym that is switched off: --bf16 False
};

struct Arguments {
  std::string command;  // the subcommand; by default the first of the table
  bool help = false, version = false;
  std::vector<SpecifiedFlag> flags;  // flag files first; the last value of a flag counts
};

// Returns the text of a file.
using ReadTextFn = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// Splits `words`, without the program's name, and flag files into flags with values. Rejects unknown, repeated and
// incomplete flags. Flag files hold one flag per line, `--name=value` or `--name value`, blank lines and `#` comments;
// they may include others (relative to themselves) without cycles. Flags outside a flag file override those in it;
// values of repeatable flags add up.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words,
                                         const std::vector<CommandSpec>& commands, const ReadTextFn& read);

// Converts "batch_size" to "--batch-size".
std::string FormatFlag(std::string_view flag);

// Returns the flags of a subcommand (a ConfigTask), for ParseArguments.
std::vector<FlagSpec> ListFlags(unsigned task);

// Converts and validates the flags, for one of `ranks` processes. Errors name the flag, and the flag file of its value.
absl::StatusOr<TrainConfig> ParseConfig(const Arguments& args, int ranks = 1);

// Explains each synonym of another library, "--learning-rate is --lr 0.1", and settings that follow from synonyms.
std::vector<std::string> DescribeSynonyms(const Arguments& args, int ranks);

// Replaces names of fields in a message of the library by flags: "`batch_size` 10" → "--batch-size 10".
std::string FieldsToFlags(std::string_view message);

// Returns the flags of `resolved` that `config` does not specify: "--lr 0.001", "--no-drop-last".
std::vector<std::string> DefaultFlags(const TrainConfig& config, const TrainConfig& resolved);

// Returns the flag of a field as help prints it: "--batch-size", "--[no-]shuffle".
std::string HelpName(const ConfigField& field);
// Returns the default of a field as help prints it; "" if it has none.
std::string DefaultText(const ConfigField& field);

// Appends `text` wrapped at `width` columns, indented by `indent`; the cursor is at `indent`.
void AppendWrapped(const std::string& text, size_t indent, size_t width, std::string* out);

// Returns the page of `onnxtrain COMMAND --help` without its heading: flags by group, with defaults.
std::string FlagHelp(unsigned task);

struct Requirement {
  std::string metric, comparison;  // "accuracy", ">="
  double bound = 0;
};

// Parses "METRIC>=X"; comparisons are >=, <=, >, <, ==.
absl::StatusOr<Requirement> ParseRequirement(const std::string& text);

// Returns nullopt for an unknown metric. NaN meets no requirement.
using MetricFn = std::function<std::optional<double>(const std::string& metric)>;

// Returns a line per requirement that is not met: "accuracy is 0.93, not >= 0.97".
std::vector<std::string> FindUnmetRequirements(const std::vector<Requirement>& requirements, const MetricFn& metric);

}  // namespace onnxtrain::cli
