#include "frontend/data/sources/bytes.h"

#include <algorithm>

namespace onnxtrain {

void SwapBytes(std::span<std::byte> data, size_t width) {
  if (width < 2) return;
  for (size_t at = 0; at + width <= data.size(); at += width) std::reverse(&data[at], &data[at] + width);
}

}  // namespace onnxtrain
