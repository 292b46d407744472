#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace onnxtrain::cases {

// The gradient of dy·f(x) with respect to x, itself differentiable.
at::Tensor Vjp(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x, const at::Tensor& dy);

}  // namespace onnxtrain::cases
