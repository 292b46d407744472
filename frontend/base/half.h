// IEEE binary16 and bfloat16 <-> float32, round to nearest even. Host side only; kernels have their own.
#pragma once

#include <cstdint>

namespace onnxtrain {

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);

}  // namespace onnxtrain
