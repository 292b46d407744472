#include "tools/onnxtrain/flags/flag_lines.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain::cli {
namespace {

constexpr int kMostValues = 10'000, kMostDepth = 8;

// Splits a line into words; the value is the rest of the line, including blanks.
std::vector<std::string> LineWords(std::string_view line) {
  const size_t blank = line.find_first_of(" \t"), equal = line.find('=');
  if (blank == std::string::npos || equal < blank) return {std::string(line)};
  return {std::string(line.substr(0, blank)),
          std::string(absl::StripLeadingAsciiWhitespace(ToAbsl(line.substr(blank))))};
}

class YamlReader {
 public:
  YamlReader(const KnownFlagFn& is_flag, const KnownFlagFn& is_repeatable)
      : is_flag_(is_flag), is_repeatable_(is_repeatable) {}

  // Adds the flags of a mapping inside the groups of `prefix`, "lora_".
  absl::Status AddGroup(const YAML::Node& group, const std::string& prefix, int depth) {
    for (const auto& entry : group) {
      if (!entry.first.IsScalar()) return Fail(entry.first, "a name of a flag is to be text");
      if (++entries_ > kMostValues) return Fail(entry.first, "too many values");
      const std::string name = NameFlag(entry.first.Scalar(), prefix);
      const bool is_group = entry.second.IsMap() && !is_repeatable_(name);
      if (!is_group) {
        RETURN_IF_ERROR(AddFlag(name, entry.first, entry.second));
        continue;
      }
      if (depth == kMostDepth) return Fail(entry.first, "groups are nested too deeply");
      RETURN_IF_ERROR(AddGroup(entry.second, StrCat(prefix, Underscored(entry.first.Scalar()), "_"), depth + 1));
    }
    return absl::OkStatus();
  }

  std::vector<FlagLine> Take() { return std::move(lines_); }

  static absl::Status Fail(const YAML::Node& place, std::string_view problem) {
    return Invalid("line ", place.Mark().line + 1, ": ", problem);
  }

 private:
  static std::string Underscored(std::string name) {
    std::ranges::replace(name, '-', '_');
    return name;
  }

  // Returns the longest name with the groups around it that is a flag; else the name itself.
  std::string NameFlag(const std::string& key, std::string_view prefix) const {
    std::string name = Underscored(key);
    for (size_t begin = 0; begin < prefix.size(); begin = prefix.find('_', begin) + 1) {
      if (std::string whole = StrCat(prefix.substr(begin), name); is_flag_(whole)) return whole;
    }
    return name;
  }

  absl::Status AddFlag(const std::string& name, const YAML::Node& place, const YAML::Node& value) {
    std::vector<std::string> values;
    if (value.IsMap()) {
      for (const auto& entry : value) {
        ASSIGN_OR_RETURN(const std::vector<std::string> named, ListValues(entry.first, entry.second));
        values.push_back(StrCat(entry.first.Scalar(), "=", absl::StrJoin(named, ",")));
      }
    } else {
      ASSIGN_OR_RETURN(values, ListValues(place, value));
    }
    if (!is_repeatable_(name) && values.size() > 1) values = {absl::StrJoin(values, ",")};
    const int line = place.Mark().line + 1;
    for (const std::string& text : values) lines_.push_back({{StrCat("--", name, "=", text)}, line});
    if (values.empty() && !is_flag_(name)) lines_.push_back({{"--" + name}, line});  // is an error without a value, too
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> ListValues(const YAML::Node& name, const YAML::Node& value) {
    std::vector<std::string> values;
    if (value.IsScalar()) values.push_back(value.Scalar());
    bool plain = name.IsScalar() && !value.IsMap();
    for (size_t i = 0; value.IsSequence() && i < value.size(); ++i) {
      plain = plain && value[i].IsScalar();
      if (++entries_ > kMostValues) return Fail(name, "too many values");
      if (plain) values.push_back(value[i].Scalar());
    }
    if (!plain)
      return Fail(name, StrCat("'", name.IsScalar() ? Printable(name.Scalar()) : "",
                               "': expected a value, a list of values or NAME: VALUE"));
    return values;
  }

  const KnownFlagFn& is_flag_;
  const KnownFlagFn& is_repeatable_;
  std::vector<FlagLine> lines_;
  int entries_ = 0;
};

}  // namespace

std::vector<FlagLine> SplitFlagFile(std::string_view text) {
  std::vector<FlagLine> lines;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = ToStd(absl::StripAsciiWhitespace(ToAbsl(text.substr(begin, end - begin))));
    begin = end + 1;
    ++number;
    if (!line.empty() && line[0] != '#') lines.push_back({LineWords(line), number});
  }
  return lines;
}

absl::StatusOr<std::vector<FlagLine>> ReadYamlFlags(std::string_view text, const KnownFlagFn& is_flag,
                                                    const KnownFlagFn& is_repeatable) {
  YamlReader reader(is_flag, is_repeatable);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) return YamlReader::Fail(documents[1], "a second document");
    if (documents.empty() || documents[0].IsNull()) return std::vector<FlagLine>();
    if (!documents[0].IsMap())
      return YamlReader::Fail(documents[0], "expected `name: value`, the flags by their names");
    RETURN_IF_ERROR(reader.AddGroup(documents[0], "", 0));
  } catch (const YAML::Exception& error) {
    return Invalid("line ", error.mark.line + 1, ": ", Printable(error.msg));
  }
  return reader.Take();
}

}  // namespace onnxtrain::cli
