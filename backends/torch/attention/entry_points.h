// The fused attention kernels of libtorch 2.x, one row each. None in libtorch 1.13, which has no public ones.
#pragma once

#include <span>
#include <string_view>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace onnxtrain::aten {

// Operands [B,H,S,D], [B,H,T,D], [B,H,T,E]; the mask is undefined or has the type of q, finite values and the shape
// [B,H,S,T].
struct AttentionOperands {
  at::Tensor q, k, v, mask;
  double scale = 1;
  bool causal = false;
};

// Results of a forward kernel. Only y and lse depend on the operands' elements: without dropout, the others hold
// extents and an unused random state, or are undefined.
struct AttentionSaved {
  at::Tensor y, lse;
  at::Tensor cum_q, cum_k, seed, offset;
  int64_t max_q = 0, max_k = 0;
};

using AttentionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Both functions throw where the kernel does not support the operands.
struct AttentionEntry {
  std::string_view name;
  at::DeviceType device;
  bool takes_mask;
  AttentionSaved (*forward)(const AttentionOperands&);
  AttentionGradients (*backward)(const at::Tensor& dy, const AttentionOperands&, const AttentionSaved&);
};

std::span<const AttentionEntry> AttentionEntries();
// Null where this libtorch has none of that name.
const AttentionEntry* FindAttentionEntry(std::string_view name);

// Operands of rank 2 to 4 as the entries take them.
at::Tensor AsHeads(const at::Tensor& x);
// A mask that broadcasts to the scores of operands of `rank` axes, which are `q` and `k` as heads: −∞ and what else the
// type of q lacks become its lowest number.
at::Tensor AsHeadMask(const at::Tensor& mask, int64_t rank, const at::Tensor& q, const at::Tensor& k);
// [B,H,S or 1,1]: the queries whose keys the mask all hides, by −∞.
at::Tensor FindHidden(const at::Tensor& mask, int64_t rank);

}  // namespace onnxtrain::aten
