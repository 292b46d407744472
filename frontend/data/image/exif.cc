#include "frontend/data/image/exif.h"

#include <algorithm>
#include <string_view>

namespace onnxtrain {
namespace {

constexpr int kOrientationTag = 0x0112, kShort = 3;

// Reads numbers of either byte order; 0 behind the end.
struct Tiff {
  std::span<const uint8_t> bytes;
  bool big_endian;

  uint32_t Number(size_t at, int size) const {
    if (at > bytes.size() || bytes.size() - at < static_cast<size_t>(size)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) value |= uint32_t{bytes[at + i]} << 8 * (big_endian ? size - 1 - i : i);
    return value;
  }
};

}  // namespace

int ExifOrientation(std::span<const uint8_t> exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.size() >= 6 && std::equal(kPrefix.begin(), kPrefix.end(), exif.begin())) exif = exif.subspan(6);
  if (exif.size() < 8 || exif[0] != exif[1] || (exif[0] != 'I' && exif[0] != 'M')) return 1;
  const Tiff tiff{exif, exif[0] == 'M'};
  const size_t directory = tiff.Number(4, 4);
  const uint32_t entries = tiff.Number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (tiff.Number(entry, 2) != kOrientationTag || tiff.Number(entry + 2, 2) != kShort) continue;
    const auto value = static_cast<int>(tiff.Number(entry + 8, 2));
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

}  // namespace onnxtrain
