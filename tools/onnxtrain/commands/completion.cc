// Completion scripts for bash, zsh and fish.
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/strings.h"
#include "tools/onnxtrain/commands/reference.h"
#include "tools/onnxtrain/flags/flags.h"

namespace onnxtrain::cli {
namespace {

std::vector<std::string> Choices(const ConfigField& field) {
  return absl::StrSplit(field.traits.choices, '|', absl::SkipEmpty());
}

// The spellings of a flag: a switch can be turned off.
std::vector<std::string> Spellings(const ConfigField& field) {
  const std::string flag = FormatFlag(field.name);
  return field.is_bool() ? std::vector{flag, "--no-" + flag.substr(2)} : std::vector{flag};
}

std::vector<std::string> FlagsOf(const Command& command) {
  std::vector<std::string> flags;
  for (const ConfigField& field : ConfigFields()) {
    if ((field.tasks & command.task) == 0) continue;
    for (std::string& flag : Spellings(field)) flags.push_back(std::move(flag));
  }
  flags.insert(flags.end(), {"--flagfile", "--config", "--help"});
  return flags;
}

std::string Names(std::span<const Command> commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const Command& c) { out->append(c.name); });
}

// The text in single quotes of a POSIX shell.
std::string Quote(std::string_view text) { return StrCat("'", Replace(text, '\'', "'\\''"), "'"); }

// A description within an option of zsh's _arguments.
std::string ZshText(std::string_view text) { return Escape(FieldsToFlags(text), "[]:"); }

std::string ZshOption(const ConfigField& field) {
  std::string options;
  for (const std::string& flag : Spellings(field)) {
    std::string option =
        StrCat(field.traits.repeatable ? "*" : "", flag, field.is_bool() ? "" : "=", "[", ZshText(field.help), "]");
    if (!field.is_bool()) {
      const std::vector<std::string> choices = Choices(field);
      StrAppend(&option, ":", ZshText(field.value), ":",
                choices.empty() ? "_files" : StrCat("(", absl::StrJoin(choices, " "), ")"));
    }
    StrAppend(&options, " ", Quote(option));
  }
  return options;
}

std::string FishText(std::string_view text) { return StrCat("'", Escape(FieldsToFlags(text), "\\'"), "'"); }

std::string FishOption(const ConfigField& field, std::span<const Command> commands) {
  std::string of, options;
  for (const Command& c : commands) {
    if ((field.tasks & c.task) != 0) StrAppend(&of, " ", c.name);
  }
  const std::vector<std::string> choices = Choices(field);
  const std::string value = field.is_bool()   ? ""
                            : choices.empty() ? " -r"
                                              : StrCat(" -x -a ", FishText(absl::StrJoin(choices, " ")));
  for (const std::string& flag : Spellings(field))
    StrAppend(&options, "complete -c onnxtrain -n '__onnxtrain_runs", of, "' -l ", flag.substr(2), value, " -d ",
              FishText(field.help), "\n");
  return options;
}

}  // namespace

std::string BashCompletion(std::span<const Command> commands) {
  std::string values, flags;
  for (const ConfigField& field : ConfigFields()) {
    if (*field.traits.choices != 0)
      StrAppend(&values, "    ", FormatFlag(field.name), ") words=", Quote(absl::StrJoin(Choices(field), " ")),
                " ;;\n");
  }
  for (const Command& c : commands)
    StrAppend(&flags, "    ", c.name, ") flags=", Quote(absl::StrJoin(FlagsOf(c), " ")), " ;;\n");
  return StrCat(R"(# bash completion of onnxtrain: source this file, or install it as
# /usr/share/bash-completion/completions/onnxtrain.
_onnxtrain() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=train flags= words= name
  local commands=)",
                Quote(Names(commands)), R"(
  for name in $commands; do [[ ${COMP_WORDS[1]} == "$name" ]] && command=$name; done
  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  case $before in
)",
                values, R"(  esac
  case $command in
)",
                flags, R"(  esac
  [[ $word == -* ]] && words=$flags
  [[ $COMP_CWORD == 1 && $word != -* ]] && words=$commands
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _onnxtrain onnxtrain
)");
}

std::string ZshCompletion(std::span<const Command> commands) {
  std::string names, flags;
  for (const Command& c : commands) {
    StrAppend(&names, " ", Quote(StrCat(c.name, ":", Escape(c.summary, ":"))));
    StrAppend(&flags, "    ", c.name, ") flags=(");
    for (const ConfigField& field : ConfigFields()) {
      if ((field.tasks & c.task) != 0) flags += ZshOption(field);
    }
    flags +=
        " '--help[Prints the flags]' '*--flagfile=[More flags, one a line]:file:_files' "
        "'*--config=[More flags, as YAML]:file:_files') ;;\n";
  }
  return StrCat(R"(#compdef onnxtrain
# zsh completion of onnxtrain: install it as _onnxtrain in a folder of $fpath.
_onnxtrain() {
  local -a commands flags
  local command=train
  commands=()",
                names, R"( )
  [[ -n ${(M)commands:#$words[2]:*} ]] && command=$words[2]
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then _describe subcommand commands; return; fi
  case $command in
)",
                flags, R"(  esac
  _arguments -S $flags '*:file:_files'
}
_onnxtrain "$@"
)");
}

std::string FishCompletion(std::span<const Command> commands) {
  std::string text = StrCat(R"(# fish completion of onnxtrain: install it as ~/.config/fish/completions/onnxtrain.fish.
function __onnxtrain_runs
  set -l words (commandline -opc)
  set -l command train
  set -q words[2]; and contains -- $words[2] )",
                            Names(commands), R"(; and set command $words[2]
  contains -- $command $argv
end
)");
  for (const Command& c : commands)
    StrAppend(&text, "complete -c onnxtrain -n __fish_use_subcommand -a ", c.name, " -d ", FishText(c.summary), "\n");
  for (const ConfigField& field : ConfigFields()) text += FishOption(field, commands);
  return text;
}

}  // namespace onnxtrain::cli
