#include "tools/onnxtrain/flags/flags.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "optim/config/config_synonyms.h"
#include "tools/onnxtrain/flags/flag_lines.h"

namespace onnxtrain::cli {
namespace {

std::string Underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::optional<bool> BoolWord(std::string_view text) {
  constexpr std::string_view kTrue[] = {"true", "yes", "on", "1"}, kFalse[] = {"false", "no", "off", "0"};
  const std::string word = absl::AsciiStrToLower(ToAbsl(text));
  if (std::find(std::begin(kTrue), std::end(kTrue), word) != std::end(kTrue)) return true;
  if (std::find(std::begin(kFalse), std::end(kFalse), word) != std::end(kFalse)) return false;
  return std::nullopt;
}

bool IsFlagWord(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  return word[1] == '-' ? word.size() > 2 : !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

// One word of the form --name, --name=value or -name.
struct Word {
  std::string name;
  std::optional<std::string> value;
};

Word SplitWord(std::string_view word) {
  word.remove_prefix(word[1] == '-' ? 2 : 1);
  const size_t equal = word.find('=');
  if (equal == std::string_view::npos) return {Underscored(word), std::nullopt};
  return {Underscored(word.substr(0, equal)), std::string(word.substr(equal + 1))};
}

std::string Trim(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return std::string(line.substr(first, line.find_last_not_of(" \t\r") - first + 1));
}

// A flag that names a file of flags.
struct FileFlag {
  const char* name;
  bool yaml;
};
constexpr FileFlag kFileFlags[] = {{"flagfile", false}, {"config", true}};

class Parser {
 public:
  Parser(const CommandSpec& command, const std::vector<CommandSpec>& commands, const ReadTextFn& read)
      : command_(command), commands_(commands), read_(read) {}

  // Parses the words of the command line or of one line of a flag file. Flags of included files come first.
  absl::Status Parse(const std::vector<std::string>& words, const std::string& place, std::vector<SpecifiedFlag>* out);

 private:
  struct Target {
    const FlagSpec* flag = nullptr;
    bool negated = false;
    const Synonym* synonym = nullptr;  // set if the flag was given by a synonym

    bool is_switch() const { return synonym == nullptr ? flag->boolean : synonym->kind == Synonym::Value::kSwitch; }
  };
  absl::StatusOr<Target> Find(const std::string& name) const;
  absl::StatusOr<Target> FindByOtherName(const std::string& name) const;
  absl::Status Unknown(const std::string& name) const;
  absl::Status BelongsElsewhere(const std::string& flag, const std::string& what, const std::string& given) const;
  absl::StatusOr<SpecifiedFlag> Specify(const Target& target, const Word& word, const std::vector<std::string>& words,
                                        size_t* i, const std::string& place) const;
  absl::StatusOr<std::string> SwitchValue(const Target& target, const Word& word, const std::vector<std::string>& words,
                                          size_t* i) const;
  absl::StatusOr<std::string> PlainValue(const Word& word, const FlagSpec& flag, const std::vector<std::string>& words,
                                         size_t* i) const;
  absl::Status LeftOver(const std::string& word) const;
  absl::StatusOr<std::vector<FlagLine>> ReadLines(const FileFlag& flag, const std::string& text) const;
  absl::Status ReadFlagFile(const FileFlag& flag, const std::string& path, const std::string& place,
                            std::vector<SpecifiedFlag>* out);

  const CommandSpec& command_;
  const std::vector<CommandSpec>& commands_;
  const ReadTextFn& read_;
  std::vector<std::string> open_files_;
};

const FlagSpec* FindFlag(const CommandSpec& command, std::string_view name) {
  auto it = std::find_if(command.flags.begin(), command.flags.end(), [&](const FlagSpec& f) { return f.name == name; });
  return it == command.flags.end() ? nullptr : &*it;
}

absl::StatusOr<Parser::Target> Parser::Find(const std::string& name) const {
  if (const FlagSpec* flag = FindFlag(command_, name)) return Target{flag, false};
  for (std::string_view prefix : {"no_", "no"}) {
    if (!name.starts_with(prefix)) continue;
    const FlagSpec* flag = FindFlag(command_, std::string_view(name).substr(prefix.size()));
    if (flag != nullptr && flag->boolean) return Target{flag, true};
    if (flag != nullptr && prefix == "no_")
      return Invalid(FormatFlag(name), ": ", FormatFlag(flag->name), " is no switch, it takes a value");
  }
  return FindByOtherName(name);
}

// Finds the flag that another library knows by this name.
absl::StatusOr<Parser::Target> Parser::FindByOtherName(const std::string& name) const {
  const Synonym* synonym = FindSynonym(name);
  const bool negated = synonym == nullptr && name.starts_with("no_");
  if (negated) synonym = FindSynonym(std::string_view(name).substr(3));
  if (synonym == nullptr || (negated && synonym->kind != Synonym::Value::kSwitch)) return Unknown(name);
  if (synonym->kind == Synonym::Value::kRefused)
    return Invalid(FormatFlag(name), ": unknown flag; ", Explain(*synonym));
  if (const FlagSpec* flag = FindFlag(command_, synonym->field)) return Target{flag, negated, synonym};
  RETURN_IF_ERROR(BelongsElsewhere(synonym->field, StrCat("is ", FormatFlag(synonym->field), " here, "), name));
  return Unknown(name);
}

// Returns the error for a flag that only other subcommands have.
absl::Status Parser::BelongsElsewhere(const std::string& flag, const std::string& what,
                                      const std::string& given) const {
  std::string elsewhere;
  for (const CommandSpec& other : commands_) {
    if (FindFlag(other, flag) != nullptr) StrAppend(&elsewhere, elsewhere.empty() ? "" : ", ", other.name);
  }
  if (elsewhere.empty()) return absl::OkStatus();
  return Invalid(FormatFlag(given), ": ", what, "no flag of '", command_.name, "' (it belongs to ", elsewhere, ")");
}

absl::Status Parser::Unknown(const std::string& name) const {
  RETURN_IF_ERROR(BelongsElsewhere(name, "", name));
  constexpr size_t kShortest = 5;  // shorter synonyms resemble too many words
  std::vector<std::string> names = {"help", "version", "flagfile", "config"};
  for (const FlagSpec& f : command_.flags) {
    names.push_back(f.name);
    if (f.boolean) names.push_back("no_" + f.name);
  }
  for (const Synonym& s : Synonyms()) {
    const std::string_view theirs = s.name;
    if (theirs.size() >= kShortest && FindFlag(command_, s.field) != nullptr) names.emplace_back(theirs);
  }
  const std::string near = Nearest(name, names);
  if (near.empty()) return Invalid(FormatFlag(name), ": unknown flag (see onnxtrain ", command_.name, " --help)");
  const Synonym* synonym = FindFlag(command_, near) == nullptr ? FindSynonym(near) : nullptr;
  return Invalid(FormatFlag(name), ": unknown flag; did you mean ",
                 FormatFlag(synonym == nullptr ? near : synonym->field), "?");
}

absl::StatusOr<std::string> Parser::SwitchValue(const Target& target, const Word& word,
                                                const std::vector<std::string>& words, size_t* i) const {
  std::optional<bool> value = true;
  if (word.value.has_value()) {
    value = BoolWord(*word.value);
    if (!value.has_value()) return Invalid(FormatFlag(word.name), ": expected true or false, got '", *word.value, "'");
    if (target.negated) return Invalid(FormatFlag(word.name), ": takes no value");
  } else if (!target.negated && *i + 1 < words.size()) {
    if (const auto next = BoolWord(words[*i + 1])) {
      value = next;
      ++*i;
    }
  }
  return *value != target.negated ? "true" : "false";
}

absl::StatusOr<std::string> Parser::PlainValue(const Word& word, const FlagSpec& flag,
                                               const std::vector<std::string>& words, size_t* i) const {
  const bool last = *i + 1 >= words.size();
  std::string value;
  if (word.value.has_value()) {
    value = *word.value;
  } else if (!flag.implied().empty() && (last || IsFlagWord(words[*i + 1]))) {
    value = flag.implied();
  } else if (last) {
    return Invalid(FormatFlag(word.name), ": the value is missing",
                   flag.value.empty() ? "" : StrCat(" (", flag.value, ")"));
  } else {
    value = words[++*i];
  }
  if (Trim(value).empty()) return Invalid(FormatFlag(word.name), ": the value is empty");
  if (value.starts_with("--"))
    return Invalid(FormatFlag(word.name), ": the value is missing (", flag.value, flag.value.empty() ? "" : "; ",
                   "next comes '", value, "')");
  return value;
}

absl::StatusOr<SpecifiedFlag> Parser::Specify(const Target& target, const Word& word,
                                              const std::vector<std::string>& words, size_t* i,
                                              const std::string& place) const {
  SpecifiedFlag flag{.name = target.flag->name, .value = {}, .place = place};
  if (target.is_switch()) {
    ASSIGN_OR_RETURN(flag.value, SwitchValue(target, word, words, i));
  } else {
    ASSIGN_OR_RETURN(flag.value, PlainValue(word, *target.flag, words, i));
  }
  const Synonym* synonym = target.synonym != nullptr ? target.synonym : FindForeignValues(flag.name);
  if (synonym == nullptr) return flag;
  auto value = TranslateValue(*synonym, flag.value);
  if (!value.ok()) return Annotate(value.status(), StrCat(FormatFlag(word.name), ": "));
  if (target.synonym == nullptr && *value == flag.value) return flag;
  flag.written = synonym->name;
  flag.theirs = std::exchange(flag.value, *std::move(value));
  const bool off = target.synonym != nullptr && target.is_switch() && flag.theirs == "false";
  // A switch for a boolean field sets it to true or false; others stand for one of several values: --bf16 True.
  if (off && flag.value != "false") {
    ASSIGN_OR_RETURN(flag.not_value, TranslateValue(*synonym, "true"));
  }
  return flag;
}

absl::Status Parser::LeftOver(const std::string& word) const {
  const auto is_command = [&](const CommandSpec& c) { return c.name == word; };
  if (std::any_of(commands_.begin(), commands_.end(), is_command)) {
    return Invalid("'", word, "': the subcommand must be the first word");
  }
  return Invalid("'", word, "': a word that belongs to no flag",
                 word.ends_with(".onnx") ? StrCat("; did you mean --model ", word, "?") : "");
}

absl::Status Parser::Parse(const std::vector<std::string>& words, const std::string& place,
                           std::vector<SpecifiedFlag>* out) {
  std::vector<SpecifiedFlag> here;
  std::vector<SpecifiedFlag> included;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!IsFlagWord(words[i])) {
      if (command_.words.empty() || !place.empty()) return LeftOver(words[i]);
      here.push_back({command_.words, words[i], place});
      continue;
    }
    const Word word = SplitWord(words[i]);
    if (const auto* file = std::ranges::find(kFileFlags, word.name, &FileFlag::name); file != std::end(kFileFlags)) {
      ASSIGN_OR_RETURN(const std::string path, PlainValue(word, {file->name}, words, &i));
      RETURN_IF_ERROR(ReadFlagFile(*file, path, place, &included));
      continue;
    }
    ASSIGN_OR_RETURN(const Target target, Find(word.name));
    ASSIGN_OR_RETURN(here.emplace_back(), Specify(target, word, words, &i, place));
  }
  out->insert(out->end(), included.begin(), included.end());
  out->insert(out->end(), here.begin(), here.end());
  return absl::OkStatus();
}

// Drops synonyms that are switched off if another flag sets the field to a value that they do not exclude.
void DropSwitchesThatAreOff(std::vector<SpecifiedFlag>* flags) {
  for (size_t i = 0; i < flags->size();) {
    const SpecifiedFlag off = (*flags)[i];
    const auto decides = [&](const SpecifiedFlag& f) {
      return f.name == off.name && f.written != off.written && f.value != off.not_value;
    };
    const bool drops = !off.not_value.empty() && std::ranges::any_of(*flags, decides);
    if (drops) {
      flags->erase(flags->begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// A flag given twice in the same place is a mistake, even where both values agree: an edit may have missed one.
absl::Status CheckTwice(const std::vector<SpecifiedFlag>& flags, const CommandSpec& command) {
  std::map<std::pair<std::string, std::string>, std::string> seen;
  for (const SpecifiedFlag& f : flags) {
    if (FindFlag(command, f.name)->repeatable || f.value.empty() || f.value == kOfOtherFlag) continue;
    const auto [it, fresh] = seen.emplace(std::pair{f.place, f.name}, f.value);
    if (!fresh) return Invalid(FormatFlag(f.name), ": given twice (", it->second, " and ", f.value, ")");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FlagLine>> Parser::ReadLines(const FileFlag& flag, const std::string& text) const {
  if (!flag.yaml) return SplitFlagFile(text);
  const auto is_file = [](std::string_view name) {
    return std::ranges::find(kFileFlags, name, &FileFlag::name) != std::end(kFileFlags);
  };
  const auto find = [&](std::string_view name) { return Find(std::string(name)); };
  return ReadYamlFlags(
      text, [&](std::string_view name) { return is_file(name) || find(name).ok(); },
      [&](std::string_view name) {
        const auto target = find(name);
        return is_file(name) || (target.ok() && target->flag->repeatable);
      });
}

absl::Status Parser::ReadFlagFile(const FileFlag& flag, const std::string& path, const std::string& place,
                                  std::vector<SpecifiedFlag>* out) {
  std::filesystem::path file(path);
  if (file.is_relative() && !place.empty()) file = std::filesystem::path(place).parent_path() / file;
  const std::string name = file.lexically_normal().string(), what = StrCat("--", flag.name, " ", name, ": ");
  if (std::find(open_files_.begin(), open_files_.end(), name) != open_files_.end())
    return Invalid(what, "includes itself");
  if (open_files_.size() >= 32) return Invalid(what, "nested too deeply");
  absl::StatusOr<std::string> text = read_(name);
  if (!text.ok()) return Annotate(text.status(), what);
  const auto lines = ReadLines(flag, *text);
  if (!lines.ok()) return Annotate(lines.status(), name + ": ");
  open_files_.push_back(name);
  std::vector<SpecifiedFlag> included, here;
  for (const FlagLine& line : *lines) {
    std::vector<SpecifiedFlag> flags;
    const absl::Status status = Parse(line.words, name, &flags);
    if (!status.ok()) return Annotate(status, StrCat(name, ": line ", line.number, ": "));
    for (SpecifiedFlag& f : flags) (f.place == name ? here : included).push_back(std::move(f));
  }
  open_files_.pop_back();
  DropSwitchesThatAreOff(&here);
  RETURN_IF_ERROR(Annotate(CheckTwice(here, command_), StrCat(name, ": ")));
  out->insert(out->end(), included.begin(), included.end());
  out->insert(out->end(), here.begin(), here.end());
  return absl::OkStatus();
}

// Copies values that a synonym leaves to another flag of the same field: --eval-strategy steps --eval-steps 50.
absl::Status CopyValuesOfOtherFlags(std::vector<SpecifiedFlag>* flags) {
  for (SpecifiedFlag& flag : *flags) {
    if (flag.written.empty() || flag.value != kOfOtherFlag) continue;
    const auto says = [&](const SpecifiedFlag& f) { return f.name == flag.name && f.value != kOfOtherFlag; };
    const auto other = std::find_if(flags->rbegin(), flags->rend(), says);
    if (other == flags->rend())
      return Invalid(FormatFlag(flag.written), ": '", flag.theirs, "': ", Explain(*FindSynonym(flag.written)));
    flag.value = other->value;
  }
  return absl::OkStatus();
}

absl::StatusOr<const CommandSpec*> ChooseCommand(const std::vector<std::string>& words,
                                                 const std::vector<CommandSpec>& commands) {
  if (words.empty() || IsFlagWord(words[0])) return &commands[0];
  std::vector<std::string> names;
  for (const CommandSpec& c : commands) {
    if (c.name == words[0]) return &c;
    names.push_back(c.name);
  }
  if (words[0].ends_with(".onnx"))
    return Invalid("'", words[0], "': unknown subcommand; did you mean --model ", words[0], "?");
  const std::string near = Nearest(words[0], names);
  return Invalid("'", words[0], "': unknown subcommand",
                 near.empty() ? " (see onnxtrain --help)" : StrCat("; did you mean ", near, "?"));
}

bool ContainsAny(const std::vector<std::string>& words, std::initializer_list<std::string_view> questions) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& w) {
    return std::find(questions.begin(), questions.end(), w) != questions.end();
  });
}

}  // namespace

std::string FlagSpec::implied() const {
  if (!value.starts_with('[') || !value.ends_with(']')) return "";
  return value.substr(1, value.find_first_of("|]") - 1);
}

std::string FormatFlag(std::string_view flag) {
  std::string out = StrCat("--", flag);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words,
                                         const std::vector<CommandSpec>& commands, const ReadTextFn& read) {
  Arguments args{.command = commands[0].name};
  args.help = ContainsAny(words, {"--help", "-help", "-h", "--help=true"});
  args.version = ContainsAny(words, {"--version", "-version"});
  if (args.version) return args;
  ASSIGN_OR_RETURN(const CommandSpec* command, ChooseCommand(words, commands));
  args.command = command->name;
  if (args.help) return args;
  const bool named = !words.empty() && !IsFlagWord(words[0]);
  RETURN_IF_ERROR(Parser(*command, commands, read).Parse({words.begin() + named, words.end()}, "", &args.flags));
  DropSwitchesThatAreOff(&args.flags);
  std::vector<SpecifiedFlag> typed;
  for (const SpecifiedFlag& f : args.flags) {
    if (f.place.empty()) typed.push_back(f);
  }
  RETURN_IF_ERROR(CheckTwice(typed, *command));
  RETURN_IF_ERROR(CopyValuesOfOtherFlags(&args.flags));
  return args;
}

}  // namespace onnxtrain::cli
