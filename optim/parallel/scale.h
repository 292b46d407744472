// Scales values of a floating-point type in host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "frontend/graph/type.h"

namespace onnxtrain {

template <typename T>
void ScaleValues(std::span<std::byte> bytes, double factor) {
  const std::span values(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T));
  if (factor == 0) {
    std::ranges::fill(values, T{0});
    return;
  }
  for (T& value : values) value = static_cast<T>(value * factor);
}

// `dtype`: f32 or f64. A factor of 0 clears values that are not finite, too.
inline void Scale(std::span<std::byte> bytes, DType dtype, double factor) {
  dtype == DType::kFloat64 ? ScaleValues<double>(bytes, factor) : ScaleValues<float>(bytes, factor);
}

}  // namespace onnxtrain
