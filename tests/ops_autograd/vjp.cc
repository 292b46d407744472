#include "vjp.h"

#include <torch/csrc/autograd/autograd.h>

namespace onnxtrain::cases {

at::Tensor Vjp(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x, const at::Tensor& dy) {
  const at::Tensor leaf = x.detach().clone().set_requires_grad(true);
  return torch::autograd::grad({f(leaf)}, {leaf}, {dy}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

}  // namespace onnxtrain::cases
