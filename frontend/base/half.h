// Converts IEEE binary16 and bfloat16 from and to float32, rounding to nearest even. For the host; kernels have their
// own conversions.
#pragma once

#include <cstdint>
#include <span>

namespace onnxtrain {

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

// The same for arrays of equal sizes.
void BFloat16ToFloat(std::span<const uint16_t> bits, std::span<float> values);
void FloatToBFloat16(std::span<const float> values, std::span<uint16_t> bits);

}  // namespace onnxtrain
