// Declares the kernels of products with one of several matrices for each row (frontend/ops/grouped_product.h), whose
// rows are in matmul.cc.
#pragma once

#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

absl::StatusOr<Kernel> PrepareGroupedMatMul(const KernelContext& c);
absl::StatusOr<Kernel> PrepareGroupedMatMulWeightGrad(const KernelContext& c);
bool AcceptsGroupedProduct(const KernelContext& c);

}  // namespace onnxtrain::cpu
