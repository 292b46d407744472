#include "frontend/data/formats/json_text.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr int kMaxDepth = 64;

// How deep brackets nest outside of strings.
int Depth(const std::string& text) {
  int depth = 0, most = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') most = std::max(most, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return most;
}

}  // namespace

absl::StatusOr<OrderedJson> ParseJsonObject(const std::string& text) {
  if (Depth(text) > kMaxDepth) return Invalid("JSON nested more than ", kMaxDepth, " deep is refused");
  OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) return Invalid("not a JSON object");
  return json;
}

}  // namespace onnxtrain
