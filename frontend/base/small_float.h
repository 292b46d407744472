// Converts floats of 16, 8 and 4 bits from and to wider ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace onnxtrain {

// Converts IEEE binary16 and bfloat16 from and to float32, rounding to nearest even. For the host; kernels have their
// own conversions.

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

// The same for arrays of equal sizes.
void BFloat16ToFloat(std::span<const uint16_t> bits, std::span<float> values);
void FloatToBFloat16(std::span<const float> values, std::span<uint16_t> bits);

// Converts floats of 8 and 4 bits from and to float64, with the rounding rules of ONNX's Cast. Formats: OCP 8-bit
// floating point, 2023; OCP Microscaling formats, 2023; Micikevicius et al., 2022, arXiv:2209.05433; Noune et al.,
// 2022, arXiv:2206.02915 for the …FNUZ variants.

enum class SmallFloat : uint8_t { kE4M3FN, kE4M3FNUZ, kE5M2, kE5M2FNUZ, kE8M0, kE2M1 };
inline constexpr int kSmallFloats = 6;

enum class SmallRounding : uint8_t {
  kNearestEven,
  kUp,         // away from zero
  kDown,       // towards zero
  kNearestUp,  // to nearest, ties away from zero
};

// Returns the value of a code; ignores the bits above a 4-bit code.
float SmallToFloat(SmallFloat format, uint8_t code);

// The encoding of a format under one rounding mode. Codes increase with the magnitude, so the sorted magnitudes at
// which the code grows by one define it; backends search the same list.
struct SmallFloatEncoding {
  std::vector<double> boundaries;  // the code is the number of boundaries ≤ |value|
  double lowest = 0;               // a smaller magnitude becomes NaN
  uint8_t sign = 0x80;             // added for negative values; 0: they become NaN
  uint8_t nan = 0x7f;
  bool negative_zero = true;  // whether -0 keeps its sign

  uint8_t Encode(double value) const;
};

// Returns the encoding, which lives for ever. With `saturate`, values out of range become the largest finite value;
// otherwise infinity, or NaN in formats without infinities. E2M1 has neither and always saturates.
const SmallFloatEncoding& GetEncoding(SmallFloat format, SmallRounding rounding, bool saturate);
// Returns ONNX's default encoding: saturating; to nearest even, E8M0 up.
const SmallFloatEncoding& GetEncoding(SmallFloat format);

}  // namespace onnxtrain
