#include "frontend/onnx/tensor_compare.h"

#include <cstring>

namespace onnxtrain {

bool IsSplat(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  const size_t size = DTypeSize(tensor.dtype());
  return bytes.empty() || std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

bool IsTransposeOf(const HostTensor& a, const HostTensor& b) {
  if (a.shape().size() != 2 || a.dtype() != b.dtype()) return false;
  const int64_t rows = a.shape()[0], columns = a.shape()[1];
  if (b.shape() != Shape{columns, rows}) return false;
  const size_t size = DTypeSize(a.dtype());
  const std::byte *p = a.bytes().data(), *q = b.bytes().data();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      if (std::memcmp(p + (i * columns + j) * size, q + (j * rows + i) * size, size) != 0) return false;
    }
  }
  return true;
}

HostTensor Transposed(const HostTensor& matrix) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  HostTensor result = matrix.Reshaped({columns, rows}).Clone();
  const size_t size = DTypeSize(matrix.dtype());
  const std::byte* from = matrix.bytes().data();
  std::byte* to = result.mutable_bytes().data();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      std::memcpy(to + (j * rows + i) * size, from + (i * columns + j) * size, size);
  }
  return result;
}

}  // namespace onnxtrain
