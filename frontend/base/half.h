// Converts IEEE binary16 and bfloat16 from and to float32, rounding to nearest even. For the host; kernels have their
// own conversions.
#pragma once

#include <cstdint>

namespace onnxtrain {

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

}  // namespace onnxtrain
