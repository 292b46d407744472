#include "frontend/base/half.h"

#include <bit>
#include <cmath>

namespace onnxtrain {

float HalfToFloat(uint16_t bits) {
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31) return mantissa ? std::bit_cast<float>(0x7fc00000u) : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  // nearbyint rounds to nearest even in the default rounding mode, which this project never changes.
  if (magnitude < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));  // in [1024, 2048]
  return sign | static_cast<uint16_t>(((exponent + 13) << 10) + mantissa);
}

namespace {

float WidenBFloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Without a branch, for loops over arrays.
uint16_t RoundToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (bits >> 16) | 0x40, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

}  // namespace

float BFloat16ToFloat(uint16_t bits) { return WidenBFloat16(bits); }

uint16_t FloatToBFloat16(float value) { return RoundToBFloat16(value); }

void BFloat16ToFloat(std::span<const uint16_t> bits, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = WidenBFloat16(bits[i]);
}

void FloatToBFloat16(std::span<const float> values, std::span<uint16_t> bits) {
  for (size_t i = 0; i < values.size(); ++i) bits[i] = RoundToBFloat16(values[i]);
}

}  // namespace onnxtrain
