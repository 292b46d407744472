// Kernels for matrices of stored numbers, which the rows of matmul.cc name.
#pragma once

#include "backends/torch/kernel.h"
#include "frontend/ops/dequantize.h"

namespace onnxtrain::aten {

// The tensors of a quantized matrix.
struct StoredMatrix {
  at::Tensor q, scale, zero;
  at::Tensor code;  // kNf4 on the device; undefined for integers and floats
  QuantizedMatrix matrix;
};
// Takes them from the operands of a node from `first` on.
StoredMatrix TakeStoredMatrix(const Args& a, size_t first);
// Returns `count` rows from `begin` on, the begin of a block.
StoredMatrix SelectRows(const StoredMatrix& m, int64_t begin, int64_t count);
at::Tensor ComputeMatrix(const StoredMatrix& m, at::ScalarType dtype);
// Returns the type to compute the matrix in: half precision has too few digits for the differences.
at::ScalarType WideType(const at::Tensor& x);

Run PrepareDequantize(const Args& a);
// dynamic_code.cc
Run PrepareQuantizeDynamic(const Args& a);
Run PrepareDequantizeDynamic(const Args& a);
Run PrepareMatMulDequantized(const Args& a);
// grouped_product.cc
Run PrepareGroupedMatMul(const Args& a);
Run PrepareGroupedMatMulWeightGrad(const Args& a);

}  // namespace onnxtrain::aten
