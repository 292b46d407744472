// Parses JSON of unknown origin, reads fields of its objects with errors that name them, and writes JSON that may hold
// a user's texts.
#pragma once

#include <string>

#include <nlohmann/json.hpp>
#include "frontend/base/status.h"

namespace onnxtrain {

// Parses JSON of unknown origin and reads fields of its objects with errors that name them.

using OrderedJson = nlohmann::ordered_json;

// Arrays and objects that are nested deeper would overflow the stack when they are copied, read or written.
inline constexpr int kDeepestJson = 64;

// Whether brackets outside of strings nest deeper than that.
bool IsNestedTooDeep(std::string_view json);

// Parses a text; the value is discarded (is_discarded) where the text is no JSON or nested too deep.
template <typename AnyJson = nlohmann::json>
AnyJson ParseJson(std::string_view text) {
  return IsNestedTooDeep(text) ? AnyJson(AnyJson::value_t::discarded) : AnyJson::parse(text, nullptr, false);
}

// Parses one object, with an error that says what else the text is.
absl::StatusOr<OrderedJson> ParseJsonObject(std::string_view text);

// Reads json[key] into *out where it is there and not null; an error where it is of another kind.
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

// json[key] as an object or array; an empty object where it is missing or null.
inline const nlohmann::json& Part(const nlohmann::json& json, const char* key) {
  static const nlohmann::json kNone = nlohmann::json::object();
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? kNone : *it;
}

// Writes JSON that may hold a user's texts.

// Returns the text of a nlohmann value: on one line, or indented by `indent`. Bytes that are not UTF-8 (of a path, a
// column, a node's name) become U+FFFD, where the library's own default throws.
template <typename AnyJson>
std::string WriteJson(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

}  // namespace onnxtrain
