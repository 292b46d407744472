// Parses untrusted JSON, reads fields of its objects with errors that name them, and writes JSON with arbitrary text.
#pragma once

#include <string>

#include <nlohmann/json.hpp>
#include "frontend/base/status.h"

namespace onnxtrain {

using OrderedJson = nlohmann::ordered_json;

// Limit on nesting, since deeper values would overflow the stack when they are copied, read or written.
inline constexpr int kDeepestJson = 64;

// Returns true if brackets outside of strings nest deeper than kDeepestJson.
bool IsNestedTooDeep(std::string_view json);

// Parses a text. Returns a discarded value (is_discarded) if it is not JSON or is nested too deep.
template <typename AnyJson = nlohmann::json>
AnyJson ParseJson(std::string_view text) {
  return IsNestedTooDeep(text) ? AnyJson(AnyJson::value_t::discarded) : AnyJson::parse(text, nullptr, false);
}

// Parses one object. The error says what else the text is.
absl::StatusOr<OrderedJson> ParseJsonObject(std::string_view text);

// Reads json[key] into *out unless it is missing or null. Fails if it has another type.
template <typename AnyJson, typename T>
absl::Status ReadField(const AnyJson& json, const char* key, T* out) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return absl::OkStatus();
  try {
    *out = it->template get<T>();
  } catch (const nlohmann::json::exception&) {
    return Invalid("'", key, "' is not what it should be");
  }
  return absl::OkStatus();
}

// Returns json[key], an object or array; an empty object if it is missing or null.
inline const nlohmann::json& Part(const nlohmann::json& json, const char* key) {
  static const nlohmann::json kNone = nlohmann::json::object();
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? kNone : *it;
}

// Returns JSON text on one line, or indented by `indent`. Replaces bytes that are not UTF-8 (in paths, column or node
// names) by U+FFFD, for which the library throws by default.
template <typename AnyJson>
std::string WriteJson(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

}  // namespace onnxtrain
