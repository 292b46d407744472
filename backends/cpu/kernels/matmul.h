// The extents of a matrix product as oneDNN sees it.
#pragma once

#include "backends/cpu/kernel.h"

namespace onnxtrain::cpu {

// y[batch…, m, n] = a[batch…, m, k]·b[batch…, k, n], all as strided views of the same rank.
struct Product {
  Shape a, b, y;                          // extents
  Shape a_strides, b_strides, y_strides;
  int64_t m, k, n;
};

// Batch axes are merged where operands allow it: a product with one shared matrix b is a single product of more rows.
Product ProductOf(const Shape& a, const Shape& b, const Shape& y, bool trans_a, bool trans_b);

}  // namespace onnxtrain::cpu
