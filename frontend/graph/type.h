// Element types, static shapes and layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

enum class DType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,
  // Storage types: one byte per element (files may pack them). Casts convert them and kernels move them, but no
  // operator computes with them. The floats are in the order of SmallFloat in frontend/base/small_float.h.
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0,
  kFloat4E2M1,
  kInt4,
  kUInt4,
  kInt2,
  kUInt2,  // integers are sign- or zero-extended to the byte
};

size_t DTypeSize(DType dtype);           // bytes of one element
std::string_view ToString(DType dtype);  // "f32", "i64", "bool" …, as in the text form
std::optional<DType> ParseDType(std::string_view name);
bool IsFloat(DType dtype);
bool IsInteger(DType dtype);     // signed or unsigned; not bool
bool IsStorage(DType dtype);     // one of the storage types, which are neither float nor integer here
bool IsSmallFloat(DType dtype);  // a storage type of floats
int StorageBits(DType dtype);    // bits of one element in a file: 8·DTypeSize except for packed types

using Shape = std::vector<int64_t>;  // extents, outermost first; {} is a scalar

// Product of the extents. The shape must have passed CheckShape.
int64_t NumElements(const Shape& shape);
// Fails on a negative extent or on more than 2^40 elements, so that products of extents cannot overflow.
absl::Status CheckShape(const Shape& shape);
// Returns the strides of a dense row-major tensor, in elements.
Shape Strides(const Shape& shape);
std::string ToString(const Shape& shape);  // "[2,3]"
// Returns the shape that numpy broadcasting gives, or nothing if the extents are incompatible.
std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b);

// The order of a tensor's elements in memory. Shapes always name the logical axes.
enum class Layout : uint8_t {
  kRowMajor,
  kChannelsLast,  // [N,C,…] stored as [N,…,C]
  kPacked,        // blocked and padded for one kernel, which alone knows the order
};

struct Type {
  DType dtype = DType::kFloat32;
  Shape shape;
  Layout layout = Layout::kRowMajor;
  size_t packed_bytes = 0;  // kPacked only

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const { return NumElements(shape); }
  size_t bytes() const {
    return layout == Layout::kPacked ? packed_bytes : static_cast<size_t>(elements()) * DTypeSize(dtype);
  }
  bool operator==(const Type&) const = default;
};

std::string ToString(const Type& type);  // "f32[2,3]", "f32[2,3,8,8]:nhwc", "bf16[8,3,3,3]:packed(1024)"

// Convert [N,C,…] to [N,…,C] and back.
Shape ToChannelsLast(Shape shape);
Shape ToChannelsFirst(Shape shape);
// Returns the extents in memory order. The type must not be packed.
Shape PhysicalShape(const Type& type);
// Returns true if row-major and channels last store [N,C,…] in the same order.
bool IsTrivialChannelsLast(const Shape& shape);

}  // namespace onnxtrain
