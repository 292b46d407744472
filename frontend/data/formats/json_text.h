// Parses JSON objects of unknown origin.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain {

using OrderedJson = nlohmann::ordered_json;

// Parses one object. Refuses arrays and objects more than 64 deep, whose copies would overflow the stack.
absl::StatusOr<OrderedJson> ParseJsonObject(const std::string& text);

}  // namespace onnxtrain
