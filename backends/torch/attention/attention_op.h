// torch.Attention and torch.AttentionGrad: attention by one of libtorch's fused kernels, which keeps the logarithm of
// each query's sum of exponentials for the backward pass. They have no dropout, because these kernels do not draw the
// counter-based masks of the operator Dropout.
//
//   torch.Attention: q [B…,S,D], k [B…,T,D], v [B…,T,E], mask? → y [B…,S,E], lse
//   torch.AttentionGrad: dy, q, k, v, y, lse, mask? → dq, dk, dv
//
// Attributes: perms: one permutation for each of dy, q, k, v, y that is an input, which transposes the input to the
// operand, then one for each output but lse, which transposes the result to the output (kernels read and write strided
// heads); scale; kernel: a name in entry_points.h; causal: query i sees the keys 0 … i (S = T, without a mask);
// may_hide_all: the mask may hide every key from a query; lse_shape: the shape of lse, which depends on the kernel. lse
// is f64 if q is, and f32 otherwise.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/graph/type.h"

namespace onnxtrain::aten {

inline constexpr char kAttention[] = "torch.Attention";
inline constexpr char kAttentionGrad[] = "torch.AttentionGrad";

// Adds the rows to the table. Idempotent.
void RegisterAttentionOps();

DType LseType(DType dtype);

// Splits the attribute `perms` into permutations of operands of the given rank.
std::vector<std::vector<int64_t>> SplitPerms(const Attrs& attrs, size_t rank);

}  // namespace onnxtrain::aten
