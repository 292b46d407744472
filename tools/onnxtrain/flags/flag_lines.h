// Reads files of flags: flag files and YAML.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain::cli {

// The words of a command line, of one line of a file.
struct FlagLine {
  std::vector<std::string> words;
  int number = 0;  // of the line, from 1
};

// Splits a flag file, which has a flag a line, `--name=value` or `--name value`, blank lines and `#` comments.
std::vector<FlagLine> SplitFlagFile(std::string_view text);

// Returns true if there is a flag, or a synonym of one, with this name.
using KnownFlagFn = std::function<bool(std::string_view name)>;

// Reads the flags of a YAML document, which JSON is, too: `name: value` with a list for a repeatable flag, and
// `input: {x: pixels}` for NAME=VALUE. Other mappings are groups, whose names lead those of flags (`lora: {rank: 8}`)
// or only sort them (`optimization: {lr: 1e-4}`). A flag without a value keeps its default. Fails, naming the line, on
// text that is no mapping, and on one of more than 10,000 values, as aliases of aliases make.
absl::StatusOr<std::vector<FlagLine>> ReadYamlFlags(std::string_view text, const KnownFlagFn& is_flag,
                                                    const KnownFlagFn& is_repeatable);

}  // namespace onnxtrain::cli
