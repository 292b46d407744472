// Converts JSON to values of templates.
#pragma once

#include "frontend/data/chat/value.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain::jinja {

// Fails on integers beyond 64 bits and on containers beyond the limits of values.
absl::StatusOr<Value> FromJson(OrderedJson json);

}  // namespace onnxtrain::jinja
