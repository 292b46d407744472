// Reads fields of JSON objects with errors that name them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "frontend/base/status.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
