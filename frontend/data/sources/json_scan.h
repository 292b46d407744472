// Finds the members of a JSON object in its text, without parsing their values.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace onnxtrain {

// A member of an object in a text. The key has no escapes.
struct JsonMember {
  std::string_view key, value;
};

// Returns the members of a JSON object. Returns nullopt for other texts, and for some objects that only ParseJson
// checks: with escapes in keys, with surrogates, or nested deep.
std::optional<std::vector<JsonMember>> ScanJsonObject(std::string_view text);

}  // namespace onnxtrain
