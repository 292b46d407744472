// Values of templates from JSON.
#pragma once

#include "frontend/data/chat/value.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain::jinja {

// Converts JSON. Fails on integers beyond 64 bits and on containers beyond the bounds of values.
absl::StatusOr<Value> FromJson(const OrderedJson& json);

}  // namespace onnxtrain::jinja
