// Changes byte order in place.
#pragma once

#include <cstddef>
#include <span>

namespace onnxtrain {

// Reverses the bytes of every element of `width` bytes.
void SwapBytes(std::span<std::byte> data, size_t width);

}  // namespace onnxtrain
