#include "frontend/data/text/alphabet.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_split.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/case_mapping.h"
#include "frontend/data/text/unicode.h"
#include "frontend/data/text/yaml_list.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr int64_t kMostClasses = int64_t{1} << 24;
constexpr char kWordMark[] = "\u2581";  // begins a word in the vocabularies of SentencePiece

// Returns true if a letter of the texts has the case.
bool HasCase(const std::vector<std::string>& texts, uint16_t flag) {
  return std::ranges::any_of(texts, [&](std::string_view text) {
    while (!text.empty()) {
      char32_t c = 0;
      text.remove_prefix(DecodeChar(text, &c));
      if (HasFlags(c, kLetter) && HasFlags(c, flag)) return true;
    }
    return false;
  });
}

// Returns true for names of classes that are no text, such as <s> and [UNK].
bool IsSpecial(std::string_view name) {
  const auto is_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/';
  };
  if (name.size() < 3) return false;
  const bool brackets = (name.front() == '<' && name.back() == '>') || (name.front() == '[' && name.back() == ']');
  return brackets && std::ranges::all_of(name.substr(1, name.size() - 2), is_name);
}

// Returns true if `|` stands for the space: there is no other space, and no other mark but those of words.
bool WritesSpaceAsBar(const std::vector<std::string>& names) {
  constexpr std::string_view kOfWords = "|'-.";
  bool bar = false;
  for (const std::string& name : names) {
    bar |= name == "|";
    if (name == " " || name.starts_with(kWordMark)) return false;
    const bool mark = name.size() == 1 && absl::ascii_ispunct(static_cast<unsigned char>(name[0]));
    if (mark && kOfWords.find(name[0]) == std::string_view::npos && name != "_") return false;
  }
  return bar;
}

// Returns the texts of names, with spaces for the marks that stand for them. Where a name is a space, marks are
// characters: PP-OCRv5 reads \u2581.
std::vector<std::string> TextsOfNames(std::vector<std::string> names) {
  const bool bar = WritesSpaceAsBar(names), space = std::ranges::find(names, " ") != names.end();
  for (std::string& name : names) {
    if (IsSpecial(name)) name.clear();
    if (bar && name == "|") name = " ";
    if (!space && name.starts_with(kWordMark)) name.replace(0, sizeof(kWordMark) - 1, " ");
  }
  return names;
}

}  // namespace

Alphabet::Alphabet(std::vector<std::string> texts, int64_t blank) : texts_(std::move(texts)), blank_(blank) {
  all_upper_ = HasCase(texts_, kUpper) && !HasCase(texts_, kLower);
  all_lower_ = HasCase(texts_, kLower) && !HasCase(texts_, kUpper);
  for (size_t c = 0; c < texts_.size(); ++c) {
    const std::string& text = texts_[c];
    if (text.empty()) continue;
    class_of_.emplace(text, static_cast<int64_t>(c));
    longest_ = std::max(longest_, text.size());
    has_spaces_ |= text[0] == ' ';
    marks_words_ |= text[0] == ' ' && text.size() > 1;
  }
}

absl::StatusOr<std::vector<int64_t>> Alphabet::Encode(std::string_view text) const {
  if (FindInvalidUtf8(text) != std::string::npos) return Invalid("the text is not UTF-8");
  std::string own = all_upper_   ? MapCase(text, CaseMapping::kUpper)
                    : all_lower_ ? MapCase(text, CaseMapping::kLower)
                                 : std::string(text);
  if (marks_words_ && !own.empty()) own.insert(own.begin(), ' ');
  std::vector<int64_t> classes;
  std::string_view rest = own;
  while (!rest.empty()) {
    auto found = class_of_.end();
    for (size_t n = std::min(longest_, rest.size()); n > 0 && found == class_of_.end(); --n)
      found = class_of_.find(std::string(rest.substr(0, n)));
    if (found == class_of_.end())
      return Invalid("the model has no character '", Printable(rest.substr(0, CharBytes(rest[0]))), "', as in '",
                     Printable(text), "'");
    classes.push_back(found->second);
    rest.remove_prefix(found->first.size());
  }
  return classes;
}

std::string Alphabet::Decode(std::span<const int64_t> classes) const {
  std::string text;
  for (const int64_t c : classes) {
    if (c >= 0 && c < std::ssize(texts_)) text += texts_[c];
  }
  if (marks_words_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::vector<int64_t> MergeRepeats(std::span<const int64_t> path, int64_t blank) {
  std::vector<int64_t> classes;
  for (size_t t = 0; t < path.size(); ++t) {
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) classes.push_back(path[t]);
  }
  return classes;
}

namespace {

using Json = OrderedJson;
using Names = std::vector<std::string>;

// Puts names in the order of their numbers, which must be 0, 1, ….
absl::StatusOr<Names> OrderByNumber(const std::vector<std::pair<std::string, int64_t>>& numbered) {
  Names names(numbered.size());
  std::vector<bool> seen(numbered.size(), false);
  for (const auto& [name, number] : numbered) {
    if (number < 0 || number >= std::ssize(names) || seen[number])
      return Invalid("'", Printable(name), "' has the number ", number, ": the ", names.size(),
                     " names need the numbers 0 to ", names.size() - 1, ", each once");
    seen[number] = true;
    names[number] = name;
  }
  return names;
}

bool IsListOfNames(const Json& json) {
  return json.is_array() && !json.empty() && std::ranges::all_of(json, &Json::is_string);
}

absl::StatusOr<Names> NamesInJson(const Json& json) {
  if (IsListOfNames(json)) return json.get<Names>();
  if (json.is_object() && std::ranges::count_if(json, IsListOfNames) == 1)
    return std::ranges::find_if(json, IsListOfNames)->get<Names>();
  std::vector<std::pair<std::string, int64_t>> numbered;
  for (const auto& [name, number] : json.items()) {
    if (!json.is_object() || !number.is_number_integer())
      return Invalid("expected an object of names and their numbers, or a list of names");
    numbered.emplace_back(name, number.get<int64_t>());
  }
  return OrderByNumber(numbered);
}

// Splits "the 3" into the name and the number; nullopt if it is no such line.
std::optional<std::pair<std::string, int64_t>> SplitNumber(const std::string& line) {
  const size_t at = line.find_last_of(" \t");
  if (at == std::string::npos) return std::nullopt;
  const auto number = ParseInt(line.substr(at + 1));
  if (!number.ok()) return std::nullopt;
  return std::pair(at == 0 ? " " : line.substr(0, at), *number);
}

absl::StatusOr<Names> NamesInLines(Names lines) {
  std::vector<std::pair<std::string, int64_t>> numbered;
  for (const std::string& line : lines) {
    if (const auto pair = SplitNumber(line)) numbered.push_back(*pair);
  }
  if (numbered.size() == lines.size()) return OrderByNumber(numbered);
  std::erase_if(lines, [](const std::string& line) { return line.size() > 1 && line[0] == '#'; });
  for (std::string& line : lines) {
    if (line == "\\#") line = "#";
  }
  return lines;
}

absl::StatusOr<Names> ParseNames(const std::string& path, const std::string& text) {
  if (path.ends_with(".json")) {
    const Json json = ParseJson<Json>(text);
    if (json.is_discarded()) return Invalid("is no JSON");
    return NamesInJson(json);
  }
  if (path.ends_with(".yml") || path.ends_with(".yaml")) return ListInYaml(text, "character_dict");
  Names lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    if (line.ends_with('\r')) line.pop_back();
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return NamesInLines(std::move(lines));
}

absl::Status CheckNames(const Names& names) {
  std::map<std::string_view, size_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (FindInvalidUtf8(names[i]) != std::string::npos) return Invalid("name ", i + 1, " is not UTF-8");
    if (names[i].empty() && i > 0 && i + 1 < names.size()) return Invalid("name ", i + 1, " is empty");
    const auto [other, added] = seen.emplace(names[i], i);
    if (!added) return Invalid("'", Printable(names[i]), "' is name ", other->second + 1, " and name ", i + 1);
  }
  if (names.empty() || std::ssize(names) > kMostClasses) return Invalid("holds ", names.size(), " names");
  return absl::OkStatus();
}

// Returns the class whose name says that it is the blank.
std::optional<int64_t> FindBlank(const Names& names) {
  constexpr std::string_view kBlanks[] = {"<blk>", "<blank>", "[blank]", "<ctc_blank>",
                                          "<b>",   "blank",   "<pad>",   "[PAD]"};
  for (const std::string_view blank : kBlanks) {
    const auto found = std::ranges::find(names, blank);
    if (found != names.end()) return found - names.begin();
  }
  const auto is_mark = [](const std::string& name) { return name.empty() || name == "_" || name == "-"; };
  if (!names.empty() && is_mark(names.front())) return 0;
  if (!names.empty() && is_mark(names.back())) return std::ssize(names) - 1;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Names> ReadAlphabetNames(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, kMostBytes));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  auto names = ParseNames(path, text);
  if (!names.ok()) return Annotate(names.status(), StrCat(path, ": "));
  RETURN_IF_ERROR(Annotate(CheckNames(*names), StrCat(path, ": ")));
  return names;
}

absl::StatusOr<std::shared_ptr<const Alphabet>> MakeAlphabet(Names names, int64_t classes,
                                                             std::optional<int64_t> blank) {
  if (blank.has_value() && *blank >= classes) return Invalid("blank=", *blank, ": the classes are 0 to ", classes - 1);
  const int64_t missing = classes - std::ssize(names);
  if (missing < 0 || missing > 2)
    return Invalid("there are ", names.size(), " characters, and ", classes, " classes in the output of the model");
  if (missing == 0 && !blank.has_value()) blank = FindBlank(names);
  if (missing == 0 && !blank.has_value())
    return Invalid("none of the ", classes, " characters is named as the blank (`loss` ctc:blank=N)");
  const bool has_space = std::ranges::find(names, " ") != names.end();
  if (missing == 2 && has_space)
    return Invalid("there are ", names.size(), " characters with the space, and ", classes,
                   " classes in the output of the model");
  if (missing == 2) names.emplace_back(" ");
  if (missing > 0) names.insert(names.begin() + blank.value_or(0), "");
  Names texts = TextsOfNames(std::move(names));
  texts[blank.value_or(0)].clear();
  return std::make_shared<const Alphabet>(std::move(texts), blank.value_or(0));
}

}  // namespace onnxtrain
