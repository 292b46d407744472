#include "frontend/data/text/yaml_list.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

// Trims spaces and tabs only: other white space, such as U+3000, may be an item.
std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

size_t Indent(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

// Parses "…" with the escapes of JSON and those with hexadecimal digits, \xNN and \UNNNNNNNN.
std::optional<std::string> ParseDoubleQuoted(std::string_view text) {
  std::string json;
  for (size_t i = 0; i < text.size(); ++i) {
    const char kind = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : ' ';
    const size_t digits = kind == 'x' ? 2 : kind == 'U' ? 8 : 0;
    if (digits == 0) {
      json += text.substr(i, kind == ' ' ? 1 : 2);
      i += kind == ' ' ? 0 : 1;
      continue;
    }
    uint32_t c = 0;
    if (!absl::SimpleHexAtoi(ToAbsl(text.substr(i + 2, digits)), &c) || c > 0x10FFFF) return std::nullopt;
    AppendChar(c, &json);
    i += 1 + digits;
  }
  const OrderedJson value = ParseJson<OrderedJson>(json);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

std::optional<std::string> ParseItem(std::string_view text) {
  if (text.starts_with('"')) return ParseDoubleQuoted(text);
  if (!text.starts_with('\'')) return text.empty() ? std::nullopt : std::optional(std::string(text));
  if (text.size() < 2 || !text.ends_with('\'')) return std::nullopt;
  return absl::StrReplaceAll(ToAbsl(text.substr(1, text.size() - 2)), {{"''", "'"}});
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListInYaml(std::string_view text, std::string_view key) {
  const std::vector<std::string> lines = absl::StrSplit(ToAbsl(text), '\n');
  size_t at = 0;
  const std::string wanted = StrCat(key, ":");
  while (at < lines.size() && Trim(lines[at]) != wanted) ++at;
  if (at == lines.size()) return Invalid("has no list ", wanted);
  const size_t indent = Indent(lines[at++]);
  std::vector<std::string> items;
  for (; at < lines.size(); ++at) {
    std::string_view item = Trim(lines[at]);
    if (Indent(lines[at]) < indent || !(item == "-" || item.starts_with("- "))) break;
    auto parsed = ParseItem(Trim(item.substr(1)));
    if (!parsed.has_value()) return Invalid("line ", at + 1, ": '", item, "' is no item of the list ", wanted);
    items.push_back(*std::move(parsed));
  }
  return items;
}

}  // namespace onnxtrain
