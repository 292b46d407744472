#include "optim/fixed_tables.h"

#include <algorithm>
#include <cmath>

namespace onnxtrain {

namespace {

// Every row has squared norm width/2, the first one has zeros and ones. Rows of zeros before them belong to special
// tokens.
bool HasRowsOfSinesAndCosines(const HostTensor& tensor) {
  const int64_t width = tensor.shape().back(), rows = tensor.size() / width;
  if (width < 4 || width % 2 != 0) return false;
  int64_t waves = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double square = 0;
    bool zeros_and_ones = true;
    for (int64_t i = 0; i < width; ++i) {
      const double x = tensor.At(r * width + i);
      zeros_and_ones &= x == 0 || x == 1;
      square += x * x;
    }
    if (waves == 0 && square == 0) continue;
    if (waves++ == 0 && !zeros_and_ones) return false;
    if (std::abs(square - static_cast<double>(width) / 2) > 1e-3 * static_cast<double>(width)) return false;
  }
  return waves >= 2;
}

// The elements of one column: position p is at first + p·stride.
struct Column {
  const HostTensor& table;
  int64_t first, stride, rows;

  double At(int64_t p) const { return table.At(first + p * stride); }
  double Neighbours(int64_t p) const { return At(p - 1) + At(p + 1); }
};

// Sines and cosines of equally spaced angles fulfil x[p−1] + x[p+1] = 2·cos(f)·x[p] for all p. Returns 2·cos(f), 2 for
// zeros.
double WaveFactor(const Column& x) {
  double product = 0, square = 0;
  for (int64_t p = 1; p + 1 < x.rows; ++p) {
    product += x.At(p) * x.Neighbours(p);
    square += x.At(p) * x.At(p);
  }
  return square > 0 ? product / square : 2;
}

bool IsWave(const Column& x) {
  const double factor = WaveFactor(x);
  double largest = 0, worst = 0;
  for (int64_t p = 1; p + 1 < x.rows; ++p) {
    worst = std::max(worst, std::abs(x.Neighbours(p) - factor * x.At(p)));
    largest = std::max(largest, std::abs(x.At(p)));
  }
  return std::abs(factor) < 2.001 && worst <= 1e-3 * largest;
}

// Positions are the first axis of more than one element. The first column has the highest frequency; those of others
// may be so low that they look like constants and straight lines, which fulfil the equation with a factor of 2.
bool HasColumnsOfWaves(const HostTensor& tensor) {
  constexpr int64_t kMinRows = 8;  // fewer may fulfil the equation by chance
  const auto axis = std::ranges::find_if(tensor.shape(), [](int64_t extent) { return extent > 1; });
  if (axis == tensor.shape().end() || *axis < kMinRows) return false;
  const int64_t rows = *axis, width = tensor.size() / rows;
  if (!IsWave({tensor, 0, width, kMinRows})) return false;  // without reading all of a large weight
  if (WaveFactor({tensor, 0, width, rows}) > 1.99) return false;
  for (int64_t c = 0; c < width; ++c) {
    if (!IsWave({tensor, c, width, rows})) return false;
  }
  return true;
}

}  // namespace

bool IsSinusoidTable(const HostTensor& tensor) {
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() < 2 || tensor.size() == 0) return false;
  return HasRowsOfSinesAndCosines(tensor) || HasColumnsOfWaves(tensor);
}

bool IsAttentionMask(const HostTensor& tensor) {
  constexpr double kHides = -1000;  // exporters write −1e4, −1e9, the lowest finite number or −inf
  if (!IsFloat(tensor.dtype()) || tensor.shape().size() < 2) return false;
  double hidden = 0;
  bool open = false;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = tensor.At(i);
    if (x == 0) {
      open = true;
    } else if (x <= kHides && (hidden == 0 || x == hidden)) {
      hidden = x;
    } else {
      return false;
    }
  }
  return open && hidden != 0;
}

}  // namespace onnxtrain
