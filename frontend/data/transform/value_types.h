// Element types as C++ types: calls a generic function with the type that stores the elements.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "frontend/base/half.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Storage types that share a C++ type.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

template <typename T>
using Tag = std::type_identity<T>;

template <typename F>
decltype(auto) Visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(Tag<float>());
    case DType::kFloat64:
      return f(Tag<double>());
    case DType::kFloat16:
      return f(Tag<Half>());
    case DType::kBFloat16:
      return f(Tag<BFloat16>());
    case DType::kInt8:
      return f(Tag<int8_t>());
    case DType::kInt16:
      return f(Tag<int16_t>());
    case DType::kInt32:
      return f(Tag<int32_t>());
    case DType::kInt64:
      return f(Tag<int64_t>());
    case DType::kUInt8:
      return f(Tag<uint8_t>());
    case DType::kUInt16:
      return f(Tag<uint16_t>());
    case DType::kUInt32:
      return f(Tag<uint32_t>());
    case DType::kUInt64:
      return f(Tag<uint64_t>());
    case DType::kBool:
      return f(Tag<Bool>());
    default:  // storage types, which ConvertValues rejects
      break;
  }
  std::abort();
}

// Converts a stored value for arithmetic.
inline float ReadScalar(Half h) { return HalfToFloat(h.bits); }
inline float ReadScalar(BFloat16 b) { return BFloat16ToFloat(b.bits); }
inline uint8_t ReadScalar(Bool b) { return b.value != 0; }
template <typename T>
T ReadScalar(T v) {
  return v;
}

}  // namespace onnxtrain
