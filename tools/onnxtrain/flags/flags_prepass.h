// Splits the words of a command line and flag files into flags with values. Knows no flag by name: a table says which
// flags each subcommand has, and another one (optim/config/config_synonyms.h) what other libraries call them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain::cli {

struct FlagSpec {
  std::string name;  // with underscores
  bool boolean = false;
  bool repeatable = false;
  std::string value = {};  // placeholder: "FILE"; in brackets, as "[auto|PATH]", where the value may be left out

  // The value of a flag that is given without one, the first of its placeholder; "" where it needs one.
  std::string implied() const;
};

struct CommandSpec {
  std::string name;
  std::vector<FlagSpec> flags;  // those that mean something to this subcommand
  std::string words = {};       // the repeatable flag that words without a flag belong to; "": there are none
};

struct SpecifiedFlag {
  std::string name;          // with underscores
  std::string value;         // "true" or "false" for switches; "" leaves the default
  std::string place;         // "" for the command line, else the flag file
  std::string written = {};  // the name by which another library knows the flag, where that was given; with underscores
  std::string theirs = {};   // the value, in the words of that library
  std::string not_value = {};  // the value that a switch of that library stands for, where it is off: --bf16 False
};

struct Arguments {
  std::string command;  // of the table; the table's first where no word says otherwise
  bool help = false, version = false;
  std::vector<SpecifiedFlag> flags;  // flag files first, so that the last value of a flag is the one that counts
};

// Returns a file's text.
using ReadTextFn = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// `words` without the program's name. Flag files hold one flag per line, `--name=value` or `--name value`, blank lines
// and `#` comments; they may name others (relative to themselves), not in a circle. What is said outside a flag file
// overrides what it says; values of repeatable flags add up.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words,
                                         const std::vector<CommandSpec>& commands, const ReadTextFn& read);

// "batch_size" → "--batch-size"
std::string FormatFlag(std::string_view flag);

}  // namespace onnxtrain::cli
