// Bytes of files that need no library to write: WAV and BMP.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnxtrain {

inline std::string LittleEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

// 16-bit samples, interleaved, in RIFF WAVE.
inline std::string Wav(int rate, int channels, const std::vector<int16_t>& samples) {
  const auto size = static_cast<uint32_t>(2 * samples.size());
  std::string wav = "RIFF" + LittleEndian(36 + size, 4) + "WAVEfmt " + LittleEndian(16, 4) + LittleEndian(1, 2) +
                    LittleEndian(channels, 2) + LittleEndian(rate, 4) + LittleEndian(rate * channels * 2, 4) +
                    LittleEndian(channels * 2, 2) + LittleEndian(16, 2) + "data" + LittleEndian(size, 4);
  for (const int16_t s : samples) wav += LittleEndian(static_cast<uint16_t>(s), 2);
  return wav;
}

// A picture of 24 bits per pixel; rgb(x, y) is 0xRRGGBB.
template <typename Rgb>
std::string Bmp(int width, int height, Rgb rgb) {
  const auto stride = static_cast<uint32_t>((3 * width + 3) / 4 * 4), size = 54 + stride * height;
  std::string bmp = "BM" + LittleEndian(size, 4) + LittleEndian(0, 4) + LittleEndian(54, 4) + LittleEndian(40, 4) +
                    LittleEndian(width, 4) + LittleEndian(height, 4) + LittleEndian(1, 2) + LittleEndian(24, 2) +
                    std::string(24, '\0');
  for (int y = height - 1; y >= 0; --y) {
    for (int x = 0; x < width; ++x) bmp += LittleEndian(rgb(x, y), 3);
    bmp.resize(bmp.size() + stride - 3 * width);
  }
  return bmp;
}

// A picture of 8 bits per pixel, grey(x, y).
template <typename Grey>
std::string GreyBmp(int width, int height, Grey grey) {
  const auto stride = static_cast<uint32_t>((width + 3) / 4 * 4);
  const uint32_t start = 54 + 4 * 256, size = start + stride * height;
  std::string bmp = "BM" + LittleEndian(size, 4) + LittleEndian(0, 4) + LittleEndian(start, 4) + LittleEndian(40, 4) +
                    LittleEndian(width, 4) + LittleEndian(height, 4) + LittleEndian(1, 2) + LittleEndian(8, 2) +
                    std::string(24, '\0');
  for (uint32_t i = 0; i < 256; ++i) bmp += LittleEndian(i * 0x010101, 4);
  for (int y = height - 1; y >= 0; --y) {
    for (int x = 0; x < width; ++x) bmp += LittleEndian(grey(x, y), 1);
    bmp.resize(bmp.size() + stride - width);
  }
  return bmp;
}

}  // namespace onnxtrain
