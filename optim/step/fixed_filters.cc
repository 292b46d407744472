#include "optim/step/fixed_filters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/onnx/recover/tensor_compare.h"
#include "optim/step/table_column.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMinWaves = 8;  // fewer may fulfil the equation of waves by chance

// A tensor as a matrix: element (r, c) is at first + r·of_row + c·of_column.
struct Matrix {
  const HostTensor& tensor;
  int64_t first, rows, columns, of_row, of_column;

  double At(int64_t r, int64_t c) const { return tensor.At(first + r * of_row + c * of_column); }
  TableColumn Column(int64_t c, int64_t length) const { return {tensor, first + c * of_column, of_row, length}; }
  // The rows from `row` on, each `stride`-th.
  Matrix Rows(int64_t row, int64_t count, int64_t stride = 1) const {
    return {tensor, first + row * of_row, count, columns, of_row * stride, of_column};
  }
};

// The first axis of more than one element against all others, or turned around.
Matrix AsMatrix(const HostTensor& tensor, bool transposed) {
  const auto axis = std::ranges::find_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  const int64_t rows = axis == tensor.shape().end() ? 1 : *axis, columns = tensor.size() / rows;
  if (transposed) return {tensor, 0, columns, rows, 1, columns};
  return {tensor, 0, rows, columns, columns, 1};
}

bool IsMatrix(const HostTensor& tensor) {
  const auto axes = std::ranges::count_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  return IsFloat(tensor.dtype()) && axes == 2;
}

double LargestAtFirst(const Matrix& m) {
  double largest = 0;
  for (int64_t i = 0; i < kMinWaves * m.columns; ++i)
    largest = std::max(largest, std::abs(m.At(i / m.columns, i % m.columns)));
  return largest;
}

// Waves of equally spaced frequencies at one time each: every column is a wave over the rows, and most turn fast.
bool HasWaves(const Matrix& m) {
  if (m.rows < kMinWaves || m.columns < kMinWaves) return false;
  const double noise = 1e-4 * LargestAtFirst(m);  // of sines of multiples of π
  int64_t slow = 0;
  for (int64_t c = 0; c < m.columns; ++c) {
    // Tells large weights without reading all of them.
    if (!IsWave(m.Column(c, kMinWaves), noise) || !IsWave(m.Column(c, m.rows), noise)) return false;
    slow += WaveFactor(m.Column(c, m.rows)) < 1.99 ? 0 : 1;
    if (2 * slow > m.columns) return false;
  }
  return true;
}

bool HasCosinesAndSines(const Matrix& m) {
  const int64_t half = m.rows / 2;
  if (HasWaves(m) || HasWaves(m.Rows(1, m.rows - 1))) return true;  // the first row may have a scale of its own
  if (m.rows % 2 != 0) return false;
  return (HasWaves(m.Rows(0, half)) && HasWaves(m.Rows(half, half))) ||
         (HasWaves(m.Rows(0, half, 2)) && HasWaves(m.Rows(1, half, 2)));
}

// The elements of a row from the first to the last one that is not zero.
struct Band {
  int64_t begin = 0, end = 0;  // empty: all are zeros
  bool in_one_piece = true;
};

Band FindBand(const Matrix& m, int64_t row) {
  Band band;
  int64_t count = 0;
  for (int64_t c = 0; c < m.columns; ++c) {
    const double x = m.At(row, c);
    if (x == 0) continue;
    if (x < 0) return {.in_one_piece = false};
    if (count++ == 0) band.begin = c;
    band.end = c + 1;
  }
  band.in_one_piece = band.end - band.begin == count;
  return band;
}

bool HasBands(const Matrix& m) {
  int64_t filled = 0, bands = 0, wide = 0, last = 0;
  for (int64_t r = 0; r < m.rows; ++r) {
    const Band band = FindBand(m, r);
    const int64_t width = band.end - band.begin;
    if (!band.in_one_piece || (width > 0 && band.begin < last)) return false;
    filled += width;
    bands += width > 0 ? 1 : 0;
    wide += width > 1 ? 1 : 0;
    if (width > 0) last = band.begin;
  }
  return bands > 2 && 2 * wide > bands && 2 * filled <= m.rows * m.columns;
}

}  // namespace

bool IsFrequencyBasis(const HostTensor& tensor) {
  if (!IsMatrix(tensor) || IsSplat(tensor)) return false;
  return HasCosinesAndSines(AsMatrix(tensor, false)) || HasCosinesAndSines(AsMatrix(tensor, true));
}

bool IsBandFilterBank(const HostTensor& tensor) {
  if (!IsMatrix(tensor)) return false;
  return HasBands(AsMatrix(tensor, false)) || HasBands(AsMatrix(tensor, true));
}

bool HasIntegerKernels(const HostTensor& tensor) {
  constexpr int64_t kFewest = 8, kMost = 1024;  // elements
  constexpr double kLargest = 64, kRounding = 1e-5;
  const Shape& shape = tensor.shape();
  if (!IsFloat(tensor.dtype()) || tensor.size() < kFewest || tensor.size() > kMost) return false;
  if (shape.size() < 3 || tensor.size() == shape[0] * shape[1]) return false;  // mixes channels only
  double unit = std::numeric_limits<double>::infinity(), least = unit, largest = -unit;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i);
    if (x == 0) continue;
    unit = std::min(unit, std::abs(x));
    least = std::min(least, x);
    largest = std::max(largest, x);
  }
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double multiple = tensor.At(i) / unit;
    if (!(std::abs(multiple) <= kLargest) || std::abs(multiple - std::round(multiple)) > kRounding) return false;
  }
  return least < largest;
}

bool RepeatsOneKernel(const HostTensor& tensor) {
  constexpr int64_t kFewest = 3;  // elements of a kernel
  const Shape& shape = tensor.shape();
  if (!IsFloat(tensor.dtype()) || shape.size() < 3 || shape[0] < 2 || shape[1] != 1) return false;
  const int64_t size = tensor.size() / shape[0];
  bool splat = true, one_hot = true;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.At(i) != tensor.At(i % size)) return false;
    splat = splat && tensor.At(i) == tensor.At(0);
    one_hot = one_hot && (tensor.At(i) == 0 || tensor.At(i) == 1);
  }
  return size >= kFewest && !splat && !one_hot;
}

}  // namespace onnxtrain
