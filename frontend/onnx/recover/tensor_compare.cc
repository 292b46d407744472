#include "frontend/onnx/recover/tensor_compare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>

namespace onnxtrain {

namespace {

// Calls visit(i, j) for the positions of each element in the tensor and in its transpose until it returns false;
// returns whether it never did.
template <typename Visit>
bool ForEachTransposed(const HostTensor& matrices, const Visit& visit) {
  const auto columns = static_cast<size_t>(matrices.shape().back());
  const auto rows = static_cast<size_t>(matrices.shape().end()[-2]);
  const auto elements = static_cast<size_t>(matrices.size());
  for (size_t first = 0; first < elements; first += rows * columns) {
    for (size_t i = 0; i < rows * columns; ++i) {
      if (!visit(first + i, first + i % columns * rows + i / columns)) return false;
    }
  }
  return true;
}

// A square matrix within a tensor, from element `first` on.
class Square {
 public:
  Square(const HostTensor& tensor, int64_t first) : tensor_(tensor), first_(first), rows_(tensor.shape().back()) {}

  bool IsDiagonal() const {
    return All([&](int64_t i, int64_t j) { return i == j || At(i, j) == 0; });
  }
  bool IsSymmetric() const {
    return All([&](int64_t i, int64_t j) { return At(i, j) == At(j, i); });
  }
  // Returns true if no number is negative and each row, or column, sums to 1 or 0, and not all do to 0.
  bool IsStochastic() const {
    if (!All([&](int64_t i, int64_t j) { return At(i, j) >= 0; })) return false;
    return SumToOne([&](int64_t i, int64_t j) { return At(i, j); }) ||
           SumToOne([&](int64_t i, int64_t j) { return At(j, i); });
  }

 private:
  double At(int64_t i, int64_t j) const { return tensor_.At(first_ + i * rows_ + j); }

  template <typename Holds>
  bool All(const Holds& holds) const {
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < rows_; ++j) {
        if (!holds(i, j)) return false;
      }
    }
    return true;
  }

  template <typename Get>
  bool SumToOne(const Get& get) const {
    constexpr double kRounding = 1e-5;
    bool any = false;
    for (int64_t i = 0; i < rows_; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < rows_; ++j) sum += get(i, j);
      if (std::abs(sum - 1) > kRounding && sum != 0) return false;
      any |= sum != 0;
    }
    return any;
  }

  const HostTensor& tensor_;
  int64_t first_, rows_;
};

}  // namespace

bool IsSplat(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  const size_t size = DTypeSize(tensor.dtype());
  return bytes.empty() || std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
}

bool IsVector(const HostTensor& tensor) {
  return IsFloat(tensor.dtype()) && std::ranges::count_if(tensor.shape(), [](int64_t d) { return d > 1; }) <= 1;
}

bool IsForgetBias(const HostTensor& tensor) {
  const int64_t gate = tensor.size() / 4;
  if (!IsVector(tensor) || tensor.size() % 4 != 0 || gate < 2) return false;
  int64_t ones = 0, forget = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.At(i) != 0 && tensor.At(i) != 1) return false;
    if (tensor.At(i) == 1 && ones++ == 0) forget = i;
  }
  return ones == gate && forget % gate == 0 && tensor.At(forget + gate - 1) == 1;
}

bool IsFreshDecay(const HostTensor& tensor) {
  constexpr int64_t kMinSize = 4;
  if (!IsFloat(tensor.dtype()) || tensor.shape().empty() || tensor.shape().back() < kMinSize) return false;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double expected = std::log(1.0 + static_cast<double>(i % tensor.shape().back()));
    if (std::abs(tensor.At(i) - expected) > 1e-5 * (1 + expected)) return false;
  }
  return tensor.size() > 0;
}

bool IsFresh(const HostTensor& tensor) { return IsSplat(tensor) || IsForgetBias(tensor) || IsFreshDecay(tensor); }

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

uint64_t SumOfBytes(const HostTensor& tensor) {
  const auto bytes = tensor.bytes();
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0},
                         [](uint64_t sum, std::byte b) { return sum + std::to_integer<uint64_t>(b); });
}

bool IsGraphMatrix(const HostTensor& tensor) {
  const Shape& shape = tensor.shape();
  const bool square = shape.size() >= 2 && shape.back() >= 3 && shape.back() == shape.end()[-2];
  if (!square || !IsFloat(tensor.dtype()) || tensor.size() == 0 || IsSplat(tensor)) return false;
  bool diagonal = true;
  for (int64_t first = 0; first < tensor.size(); first += shape.back() * shape.back()) {
    const Square matrix(tensor, first);
    if (!matrix.IsSymmetric() && !matrix.IsStochastic()) return false;
    diagonal = diagonal && matrix.IsDiagonal();
  }
  return !diagonal;
}

Shape TransposedShape(Shape shape) {
  std::iter_swap(shape.end() - 1, shape.end() - 2);
  return shape;
}

bool IsTransposeOf(const HostTensor& a, const HostTensor& b) {
  if (a.shape().size() < 2 || a.dtype() != b.dtype() || b.shape() != TransposedShape(a.shape())) return false;
  const size_t size = DTypeSize(a.dtype());
  const std::byte *p = a.bytes().data(), *q = b.bytes().data();
  return ForEachTransposed(a, [&](size_t i, size_t j) { return std::memcmp(p + i * size, q + j * size, size) == 0; });
}

}  // namespace onnxtrain
