// Encodes and decodes the storage types of one byte per element (type.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "frontend/base/small_float.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Returns the format of a small float type.
SmallFloat ToSmallFloat(DType dtype);
// Truncates an integer to the bits of the type, then sign- or zero-extends it.
int64_t WrapSmallInt(DType dtype, int64_t value);
// Decodes the byte that stores one element.
double SmallValue(DType dtype, uint8_t byte);
// Returns the encoding of an EncodeFloat node. Requires attributes that the type rule has accepted.
const SmallFloatEncoding& GetEncoding(const Attrs& attrs);
// Parses "even", "up", "down" or "nearest" (ties away from zero).
std::optional<SmallRounding> ParseSmallRounding(std::string_view name);

}  // namespace onnxtrain
