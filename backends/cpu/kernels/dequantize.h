// Kernels for matrices of stored numbers, which the rows of matmul.cc name.
#pragma once

#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

absl::StatusOr<Kernel> PrepareDequantize(const KernelContext& c);
bool AcceptsDequantize(const KernelContext& c);
absl::StatusOr<Kernel> PrepareMatMulDequantized(const KernelContext& c);
bool AcceptsMatMulDequantized(const KernelContext& c);

}  // namespace onnxtrain::cpu
