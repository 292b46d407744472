
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtrain::aten {

// Returns i64 indices in [0, n): negative ones count from the end, others are clamped.
at::Tensor SafeIndex(const at::Tensor& index, int64_t n);

}  // namespace onnxtrain::aten
