// A kernel that is one ATen call of two inputs.
#pragma once

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

using BinaryOut = at::Tensor& (*)(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

template <BinaryOut F>
Run Binary(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]]() mutable { F(y, x, z); };
}

}  // namespace onnxtrain::aten
