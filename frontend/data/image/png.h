// Writes PNG in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace onnxtrain {

// `pixels`: [height, width, channels] bytes, of one channel (grey) or three (RGB). "" where libpng fails.
std::string EncodePng(std::string_view pixels, int64_t height, int64_t width, int64_t channels);

}  // namespace onnxtrain
