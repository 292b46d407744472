// Writes JSON that may hold a user's texts.
#pragma once

#include <string>

namespace onnxtrain {

// Returns the text of a nlohmann value: on one line, or indented by `indent`. Bytes that are not UTF-8 (of a path, a
// column, a node's name) become U+FFFD, where the library's own default throws.
template <typename AnyJson>
std::string WriteJson(const AnyJson& json, int indent = -1) {
  return json.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

}  // namespace onnxtrain
