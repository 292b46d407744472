#include "frontend/graph/small_types.h"

#include <iterator>

namespace onnxtrain {

SmallFloat ToSmallFloat(DType dtype) {
  return static_cast<SmallFloat>(static_cast<int>(dtype) - static_cast<int>(DType::kFloat8E4M3FN));
}

int64_t WrapSmallInt(DType dtype, int64_t value) {
  const int64_t sign = int64_t{1} << (StorageBits(dtype) - 1), low = value & (2 * sign - 1);
  const bool is_signed = dtype == DType::kInt4 || dtype == DType::kInt2;
  return is_signed ? (low ^ sign) - sign : low;
}

double SmallValue(DType dtype, uint8_t byte) {
  if (IsSmallFloat(dtype)) return SmallToFloat(ToSmallFloat(dtype), byte);
  return static_cast<double>(WrapSmallInt(dtype, byte));
}

std::optional<SmallRounding> ParseSmallRounding(std::string_view name) {
  constexpr std::string_view kNames[] = {"even", "up", "down", "nearest"};  // indexed by SmallRounding
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<SmallRounding>(i);
  }
  return std::nullopt;
}

const SmallFloatEncoding& GetEncoding(const Attrs& attrs) {
  return GetEncoding(ToSmallFloat(*ParseDType(attrs.String("to"))), *ParseSmallRounding(attrs.String("round_mode")),
                     attrs.Int("saturate") != 0);
}

}  // namespace onnxtrain
