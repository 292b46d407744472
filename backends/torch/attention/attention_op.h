// torch.Attention and torch.AttentionGrad: attention by one of libtorch's fused kernels, which keeps the logarithm of
// each query's sum of exponentials for the backward pass. Without dropout: the masks of these kernels would not be the
// counter-based ones of the operator Dropout.
//
//   torch.Attention: q [B…,S,D], k [B…,T,D], v [B…,T,E], mask? → y [B…,S,E], lse
//   torch.AttentionGrad: dy, q, k, v, y, lse, mask? → dq, dk, dv
//
// Attributes: perms: a permutation for each of dy, q, k, v, y that is an input, which transposes it to the operand,
// then one for each output but lse, which transposes the result to it: kernels take and give strided heads. scale;
// kernel: a name in entry_points.h; causal: query i sees the keys 0 … i (S = T, without a mask); may_hide_all: the mask
// may hide every key from a query; lse_shape: the shape of lse, which the kernel defines. Its type is f64 beside f64
// and f32 otherwise.
#pragma once

#include <vector>

#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain::aten {

inline constexpr char kAttention[] = "torch.Attention";
inline constexpr char kAttentionGrad[] = "torch.AttentionGrad";

// Adds the rows to the table. Idempotent.
void RegisterAttentionOps();

DType LseType(DType dtype);

// The attribute `perms` of operands of that rank, one by one.
std::vector<std::vector<int64_t>> SplitPerms(const Attrs& attrs, size_t rank);

}  // namespace onnxtrain::aten
