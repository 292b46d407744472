// The values of the storage types: what a byte means, and which byte a number becomes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "frontend/base/small_float.h"
#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Of a small float.
SmallFloat SmallFormat(DType dtype);
// The integers keep the lowest bits of a number, as their own sign or none wants them.
int64_t WrapSmallInt(DType dtype, int64_t value);
// The number behind a byte.
double SmallValue(DType dtype, uint8_t byte);
// How an EncodeFloat node rounds; its attributes have passed the type rule.
const SmallEncoding& EncodingOf(const Attrs& attrs);
// "even", "up", "down" or "nearest" (ties up).
std::optional<SmallRounding> SmallRoundingOf(std::string_view name);

}  // namespace onnxtrain
