// The fused attention kernels of libtorch 2.x, one row each. libtorch 1.13 has no public ones.
#pragma once

#include <span>
#include <string_view>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace onnxtrain::aten {

// Operands of shapes [B,H,S,D], [B,H,T,D], [B,H,T,E]. The mask is undefined, or has the type of q, finite values and
// the shape [B,H,S,T].
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

// One kernel. Both functions throw if it does not support the operands.
struct AttentionEntry {
  std::string_view name;
  at::DeviceType device;
  bool takes_mask;
  AttentionSaved (*forward)(const AttentionOperands&);
  AttentionGradients (*backward)(const at::Tensor& dy, const AttentionOperands&, const AttentionSaved&);
};

std::span<const AttentionEntry> AttentionEntries();
// Returns null if this libtorch has no kernel of that name.
const AttentionEntry* FindAttentionEntry(std::string_view name);

// Reshapes an operand of rank 2 to 4 to [B,H,·,·].
at::Tensor AsHeads(const at::Tensor& x);
// Broadcasts a mask of the scores of operands of `rank` axes to the heads `q` and `k`, in the type of q. −∞ and other
// numbers that q's type cannot represent become its lowest finite number.
at::Tensor AsHeadMask(const at::Tensor& mask, int64_t rank, const at::Tensor& q, const at::Tensor& k);
// Returns [B,H,S or 1,1], true for queries all of whose keys are masked by −∞.
at::Tensor FindHidden(const at::Tensor& mask, int64_t rank);

}  // namespace onnxtrain::aten
