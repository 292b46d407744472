
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtrain::aten {

// i64 indices in [0, n): negative ones count from the end, the rest is clamped.
at::Tensor SafeIndex(const at::Tensor& index, int64_t n);

}  // namespace onnxtrain::aten
