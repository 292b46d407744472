#include "frontend/data/sources/json.h"

#include <algorithm>

namespace onnxtrain {

bool IsNestedTooDeep(std::string_view json) {
  const auto opens = [](char c) { return c == '[' || c == '{'; };
  if (std::ranges::count_if(json, opens) <= kDeepestJson) return false;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepestJson) return true;
  }
  return false;
}

absl::StatusOr<OrderedJson> ParseJsonObject(std::string_view text) {
  if (IsNestedTooDeep(text)) return Invalid("JSON nested more than ", kDeepestJson, " deep is refused");
  auto json = ParseJson<OrderedJson>(text);
  if (!json.is_object()) return Invalid("not a JSON object");
  return json;
}

}  // namespace onnxtrain
