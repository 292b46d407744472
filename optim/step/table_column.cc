#include "optim/step/table_column.h"

#include <algorithm>
#include <cmath>

namespace onnxtrain {

double WaveFactor(const TableColumn& x) {
  double product = 0, square = 0;
  for (int64_t p = 1; p + 1 < x.rows; ++p) {
    product += x.At(p) * x.Neighbours(p);
    square += x.At(p) * x.At(p);
  }
  return square > 0 ? product / square : 2;
}

bool IsWave(const TableColumn& x, double noise) {
  const double factor = WaveFactor(x);
  double largest = 0, worst = 0;
  for (int64_t p = 1; p + 1 < x.rows; ++p) {
    worst = std::max(worst, std::abs(x.Neighbours(p) - factor * x.At(p)));
    largest = std::max(largest, std::abs(x.At(p)));
  }
  if (std::max(worst, largest) <= noise) return true;  // the factor of noise may be any
  return std::abs(factor) < 2.001 && worst <= std::max(noise, 1e-3 * largest);
}

}  // namespace onnxtrain
