#include "optim/fixed_tables.h"

#include <cmath>

namespace onnxtrain {

bool IsSinusoidTable(const HostTensor& tensor) {
  const Shape& shape = tensor.shape();
  if (!IsFloat(tensor.dtype()) || shape.size() < 2 || tensor.size() == 0) return false;
  const int64_t width = shape.back(), rows = tensor.size() / width;
  if (width < 4 || width % 2 != 0 || rows < 2) return false;
  for (int64_t r = 0; r < rows; ++r) {
    double square = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double x = tensor.At(r * width + i);
      if (r == 0 && x != 0 && x != 1) return false;
      square += x * x;
    }
    if (std::abs(square - static_cast<double>(width) / 2) > 1e-3 * static_cast<double>(width)) return false;
  }
  return true;
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
