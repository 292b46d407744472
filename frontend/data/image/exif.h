// The orientation of a photograph from its EXIF data (CIPA DC-008, section 4.6.4).
#pragma once

#include <cstdint>
#include <span>

namespace onnxtrain {

// Returns the orientation tag (1 to 8) of the first directory of a TIFF structure, which may follow "Exif\0\0". 1 where
// there is none or the structure is broken.
int ExifOrientation(std::span<const uint8_t> exif);

}  // namespace onnxtrain
