// Determinants and cofactors.
#include <ATen/ops/cat.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

Run Det(const Args& a) {
  return [x = a.in[0], y = a.out[0]] { y.copy_(at::linalg_det(x)); };
}

// The product of all others along the last axis.
at::Tensor ProductOfOthers(const at::Tensor& s) {
  const at::Tensor one = at::ones_like(s.narrow(-1, 0, 1));
  const int64_t n = s.size(-1);
  const at::Tensor before = at::cat({one, at::cumprod(s, -1).narrow(-1, 0, n - 1)}, -1);
  const at::Tensor behind = at::cumprod(at::flip(s, {-1}), -1).narrow(-1, 0, n - 1);
  return before * at::flip(at::cat({one, behind}, -1), {-1});
}

// With x = U·S·Vᵀ, cofactors are det U·det V·U·S'·Vᵀ, where S' holds the products of the other singular values: no
// division, so that singular matrices are no exception.
Run Cofactor(const Args& a) {
  return [x = a.in[0], y = a.out[0]] {
    if (y.numel() == 0) return;
    const auto [u, s, vt] = at::linalg_svd(x, true);
    const at::Tensor sign = (at::linalg_det(u) * at::linalg_det(vt)).unsqueeze(-1).unsqueeze(-1);
    y.copy_(at::matmul(u * ProductOfOthers(s).unsqueeze(-2), vt).mul_(sign));
  };
}

}  // namespace

std::span<const NamedKernel> DeterminantKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Det", {Det}},
      {"Cofactor", {Cofactor}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
