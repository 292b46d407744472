// Maps element types to C++ types when a kernel is prepared.
#pragma once

#include <cstdint>

#include "frontend/base/log.h"
#include "frontend/graph/type.h"

namespace onnxtrain::cpu {

// The extents of a dense tensor viewed as [outer, n, inner] around one of its axes.
struct AxisView {
  int64_t outer = 1, n = 1, inner = 1;
};

inline AxisView ViewAround(const Shape& shape, int64_t axis) {
  AxisView v{.n = shape[axis]};
  for (int64_t a = 0; a < axis; ++a) v.outer *= shape[a];
  for (size_t a = axis + 1; a < shape.size(); ++a) v.inner *= shape[a];
  return v;
}

// An element of type bf16. Kernels compute in float32.
struct BFloat16 {
  uint16_t bits;
};

// Calls f(T()) with the C++ type of float32 or bf16.
template <typename F>
auto ForFloat(DType dtype, F&& f) {
  return dtype == DType::kBFloat16 ? f(BFloat16()) : f(float());
}

// Calls f(T()) with the C++ type of an integer (or bool: uint8_t) element type.
template <typename F>
auto ForInteger(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt8:
      return f(int8_t());
    case DType::kInt16:
      return f(int16_t());
    case DType::kInt32:
      return f(int32_t());
    case DType::kInt64:
      return f(int64_t());
    case DType::kUInt16:
      return f(uint16_t());
    case DType::kUInt32:
      return f(uint32_t());
    case DType::kUInt64:
      return f(uint64_t());
    default:
      return f(uint8_t());
  }
}

// Calls f(T()) with the C++ type of float32 or float64.
template <typename F>
auto ForReal(DType dtype, F&& f) {
  return dtype == DType::kFloat64 ? f(double()) : f(float());
}

// Calls f(T()) with the C++ type of an integer type, float32 or float64.
template <typename F>
auto ForNumber(DType dtype, F&& f) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 ? ForReal(dtype, f) : ForInteger(dtype, f);
}

// Calls f(T()) with the unsigned integer of `element_size` bytes, for kernels that only move elements.
template <typename F>
auto ForSize(size_t element_size, F&& f) {
  switch (element_size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    default:
      return f(uint64_t());
  }
}

}  // namespace onnxtrain::cpu
