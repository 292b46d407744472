// Conversions between colors, rounded as Pillow's Image.convert does.
#pragma once

#include <cstdint>

#include "frontend/data/image/image.h"

namespace onnxtrain {

// ITU-R 601-2 luma in 16-bit fixed point.
constexpr uint8_t Luma(int r, int g, int b) {
  return static_cast<uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

// Rounds a·b / 255 to nearest.
constexpr int MulDiv255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

// Returns a channel of RGB from one of CMYK, both with 255 for full light and full ink.
constexpr uint8_t FromInk(int ink, int black) {
  const int left = 255 - black - MulDiv255(ink, 255 - black);
  return static_cast<uint8_t>(left < 0 ? 0 : left);
}

// Are the three channels of every pixel equal?
bool IsGrey(const Image& image);

// Converts a picture to 1 or 3 channels.
void SetChannels(int channels, Image* image);

}  // namespace onnxtrain
