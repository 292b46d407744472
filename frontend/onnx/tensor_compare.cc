#include "frontend/onnx/tensor_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace onnxtrain {

bool IsSplat(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  const size_t size = DTypeSize(tensor.dtype());
  return bytes.empty() || std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

bool IsProgression(const HostTensor& tensor) {
  constexpr int64_t kMinSize = 4;
  constexpr double kRounding = 1e-5;  // of numbers that were computed as float32
  const auto axes = std::ranges::count_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  if (!IsFloat(tensor.dtype()) || axes != 1 || tensor.size() < kMinSize || tensor.At(0) == tensor.At(1)) return false;
  const double first = tensor.At(0), second = tensor.At(1), step = second - first;
  bool sums = true, powers = first != 0 && second != 0;
  for (int64_t i = 2; i < tensor.size() && (sums || powers); ++i) {
    const double x = tensor.At(i), last = tensor.At(i - 1), steps = static_cast<double>(i) * step;
    sums = sums && std::abs(x - first - steps) <= kRounding * (std::abs(first) + std::abs(steps));
    powers = powers && std::abs(x * first - last * second) <= kRounding * std::abs(last * second);
  }
  return sums || powers;
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
