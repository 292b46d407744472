// Converts floats of 16, 8 and 4 bits from and to wider ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace onnxtrain {

// Convert IEEE binary16 and bfloat16 from and to float32, rounding to nearest even. For host code; kernels have faster
// conversions.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

// Convert arrays of equal sizes.
void BFloat16ToFloat(std::span<const uint16_t> bits, std::span<float> values);
void FloatToBFloat16(std::span<const float> values, std::span<uint16_t> bits);

// A float format of 8 or 4 bits. Sources: OCP 8-bit floating point, 2023; OCP Microscaling formats, 2023; Micikevicius
// et al., 2022, arXiv:2209.05433; Noune et al., 2022, arXiv:2206.02915 for the …FNUZ variants.
enum class SmallFloat : uint8_t { kE4M3FN, kE4M3FNUZ, kE5M2, kE5M2FNUZ, kE8M0, kE2M1 };
inline constexpr int kSmallFloats = 6;

enum class SmallRounding : uint8_t {
  kNearestEven,
  kUp,         // away from zero
  kDown,       // towards zero
  kNearestUp,  // to nearest, ties away from zero
};

// Decodes a number. Ignores the upper four bits of a 4-bit format.
float SmallToFloat(SmallFloat format, uint8_t code);

// Encodes float64 under one rounding mode, as ONNX's Cast does. Codes increase with the magnitude, so a sorted list of
// the magnitudes at which the code increases by one defines the encoding. Backends search the same list.
struct SmallFloatEncoding {
  std::vector<double> boundaries;  // the code is the number of boundaries ≤ |value|
  double lowest = 0;               // smaller magnitudes become NaN
  uint8_t sign = 0x80;             // sign bit of negative values; 0: negative values become NaN
  uint8_t nan = 0x7f;
  bool negative_zero = true;  // -0 keeps its sign

  uint8_t Encode(double value) const;
};

// Returns a static encoding. With `saturate`, values out of range become the largest finite value; otherwise infinity,
// or NaN in formats without infinities. E2M1 has neither and always saturates.
const SmallFloatEncoding& GetEncoding(SmallFloat format, SmallRounding rounding, bool saturate);
// Returns the default of ONNX's Cast: saturating, and to nearest even except for E8M0, which rounds up.
const SmallFloatEncoding& GetEncoding(SmallFloat format);

}  // namespace onnxtrain
