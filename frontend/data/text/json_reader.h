// Reads fields of JSON objects with errors that name them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "frontend/base/status.h"

namespace onnxtrain {

using Json = nlohmann::json;

// Reads json[key] into *out where it is there and not null; an error where it is of another kind.
template <typename T>
absl::Status ReadField(const Json& json, const char* key, T* out) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return absl::OkStatus();
  try {
    *out = it->get<T>();
  } catch (const Json::exception&) {
    return Invalid("'", key, "' is not what it should be");
  }
  return absl::OkStatus();
}

// json[key] as an object or array; an empty object where it is missing or null.
inline const Json& Part(const Json& json, const char* key) {
  static const Json kNone = Json::object();
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? kNone : *it;
}

}  // namespace onnxtrain
