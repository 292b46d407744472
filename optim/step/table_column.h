// Columns of tables, and whether they are waves.
#pragma once

#include <cstdint>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// The elements of one column: position p is at first + p·stride. The table must outlive it.
struct TableColumn {
  const HostTensor& table;
  int64_t first, stride, rows;

  double At(int64_t p) const { return table.At(first + p * stride); }
  double Neighbours(int64_t p) const { return At(p - 1) + At(p + 1); }
};

// Sines and cosines of equally spaced angles fulfil x[p−1] + x[p+1] = 2·cos(f)·x[p] for all p. Returns 2·cos(f), 2 for
// zeros.
double WaveFactor(const TableColumn& x);

// Does the column fulfil that within a thousandth of its largest number or within `noise`, or is all of it noise?
bool IsWave(const TableColumn& x, double noise = 0);

}  // namespace onnxtrain
