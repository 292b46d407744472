// Kernels for matrices of stored numbers, which the rows of matmul.cc name.
#pragma once

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

Run PrepareDequantize(const Args& a);
// dynamic_code.cc
Run PrepareQuantizeDynamic(const Args& a);
Run PrepareDequantizeDynamic(const Args& a);
Run PrepareMatMulDequantized(const Args& a);

}  // namespace onnxtrain::aten
