// Matrix products for oneDNN.
#pragma once

#include <optional>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

// y[batch…, m, n] = a[batch…, m, k]·b[batch…, k, n], all as strided views of the same rank.
struct Product {
  Shape a, b, y;  // extents
  Shape a_strides, b_strides, y_strides;
  int64_t m, k, n;

  bool empty() const { return m == 0 || k == 0 || n == 0 || NumElements(y) == 0; }
};

// Batch axes are merged where operands allow it: a product with one shared matrix b is a single product of more rows.
Product MakeProduct(const Shape& a, const Shape& b, const Shape& y, bool trans_a, bool trans_b);

// Returns the fastest layout of a weight [k, n] of that type for m rows; nothing if that is row-major.
std::optional<dnnl::memory::desc> FindPackedLayout(int64_t m, int64_t k, int64_t n, DType dtype);

}  // namespace onnxtrain::cpu
