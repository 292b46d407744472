// A dense row-major tensor in host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain {

// A dense tensor in host memory. Copies share the bytes; Clone() copies them. Writes through mutable_bytes() are
// visible to all copies, so only the code that created a tensor may write to it. Any thread may read.
class HostTensor {
 public:
  HostTensor() = default;
  explicit HostTensor(Type type);  // zeroed, 64-byte aligned
  // Creates a view of type.bytes() bytes that `owner` keeps alive, such as a mapped file. The address may be unaligned,
  // but then data() must not be called.
  HostTensor(Type type, std::shared_ptr<const void> owner, const void* data);

  static HostTensor Scalar(DType dtype, double value);
  static HostTensor Filled(Type type, double value);
  static HostTensor FromInts(const std::vector<int64_t>& values);  // i64[n]
  static HostTensor FromDoubles(Type type, std::span<const double> values);
  static HostTensor FromInts(Type type, std::span<const int64_t> values);

  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  int64_t size() const { return type_.elements(); }

  std::span<const std::byte> bytes() const;
  std::span<std::byte> mutable_bytes();
  // T must have the size of the element type.
  template <typename T>
  std::span<const T> data() const {
    return {reinterpret_cast<const T*>(bytes().data()), static_cast<size_t>(size())};
  }
  template <typename T>
  std::span<T> mutable_data() {
    return {reinterpret_cast<T*>(mutable_bytes().data()), static_cast<size_t>(size())};
  }

  // Read or write one element with conversion. A NaN becomes the integer 0; out-of-range floats saturate.
  double At(int64_t i) const;
  int64_t IntAt(int64_t i) const;
  void Set(int64_t i, double value);
  void SetInt(int64_t i, int64_t value);
  // Read or write consecutive elements from `begin` on, faster than one by one.
  void Read(int64_t begin, std::span<double> out) const;
  void Write(int64_t begin, std::span<const double> values);
  std::vector<double> ToDoubles() const;
  std::vector<int64_t> ToInts() const;

  HostTensor Clone() const;
  HostTensor Reshaped(Shape shape) const;  // shares the bytes; the element count must not change
  HostTensor CastTo(DType dtype) const;
  bool SameBytes(const HostTensor& other) const;
  bool operator==(const HostTensor& other) const { return SameBytes(other); }

 private:
  Type type_;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
};

}  // namespace onnxtrain
