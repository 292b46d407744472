// Pages and scripts that are generated from the table of subcommands and the fields of TrainConfig.
#pragma once

#include <span>
#include <string>

#include "tools/onnxtrain/commands/command.h"

namespace onnxtrain::cli {

// Returns `text` with a backslash before each of the `special` characters.
std::string Escape(std::string_view text, std::string_view special);

// Returns `text` with `to` in place of each `from`.
std::string Replace(std::string_view text, char from, std::string_view to);

// Return the completion script of a shell.
std::string BashCompletion(std::span<const Command> commands);
std::string ZshCompletion(std::span<const Command> commands);
std::string FishCompletion(std::span<const Command> commands);

// Returns the manual page onnxtrain(1), as groff source.
std::string ManualPage(std::span<const Command> commands);

// Returns docs/reference/flags.md.
std::string FlagsPage(std::span<const Command> commands);

// Returns python/onnxtrain/_flags.py: the types of the flags of the subcommands that are functions there.
std::string PythonFlags(std::span<const Command> commands);

// Returns the table of docs/reference/data-formats.md: the kinds of data that `data` names as KIND:PATH.
std::string DataFormatsTable();

}  // namespace onnxtrain::cli
