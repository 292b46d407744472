// Defines tensors that are computed when they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// A tensor that is read in blocks: a view of a HostTensor, or computed from other tensors without a whole copy in
// memory. Copies share the operands. Reading is thread-safe.
class LazyTensor {
 public:
  // Returns `count` elements from `begin` on, in row-major order, as a vector.
  using ReadElements = std::function<HostTensor(int64_t begin, int64_t count)>;

  LazyTensor() = default;        // no elements
  LazyTensor(HostTensor value);  // NOLINT(google-explicit-constructor)
  LazyTensor(Type type, ReadElements read) : type_(std::move(type)), read_(std::move(read)) {}

  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  size_t bytes() const { return read_ ? static_cast<size_t>(type_.bytes()) : 0; }

  HostTensor Read(int64_t begin, int64_t count) const { return read_(begin, count); }
  HostTensor Whole() const;  // shares the bytes of a view

  // Calls visit(begin, block) for consecutive blocks of at most 1 MiB until it returns false; returns true if it never
  // did. Releases the pages of mapped files after reading them.
  bool ForEachBlock(const std::function<bool(int64_t begin, const HostTensor& block)>& visit) const;
  bool SameBytes(const HostTensor& other) const;

  LazyTensor CastTo(DType dtype) const;
  LazyTensor Map(double (*f)(double)) const;  // applies f to each element

 private:
  Type type_;
  ReadElements read_;
};

// Returns the tensor, a matrix or a batch of them, with its last two axes exchanged.
LazyTensor Transpose(const HostTensor& matrices);

// Concatenates tensors along their first axis. `type` is the type of the result.
LazyTensor Concat(Type type, std::vector<LazyTensor> parts);

// Returns elements [begin, begin + count) as a vector.
LazyTensor Slice(const LazyTensor& tensor, int64_t begin, int64_t count);

}  // namespace onnxtrain
