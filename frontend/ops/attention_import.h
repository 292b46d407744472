// What the import functions of attention share: those of ONNX itself and those of ONNX Runtime's fused nodes.
#pragma once

#include <span>

#include "frontend/ops/onnx_import.h"

namespace onnxtrain {

// [B,S,H·D] → [B,H,S,D]. Fails on another rank or a number of heads that does not divide.
absl::StatusOr<Val> SplitHeads(Val x, int64_t heads);
// [B,H,S,D] → [B,S,H·D]
Val MergeHeads(Val x);
// An additive mask: 0 where `allowed` (bool) holds, else `otherwise`.
Val AdditiveMask(Val allowed, DType type, double otherwise);
// [S,T], bool: query i of S, which stands at position past + i, sees keys 0 … past + i of T.
absl::StatusOr<Val> CausalMask(Builder& b, int64_t s, int64_t t, int64_t past);

// The domain com.microsoft.
std::span<const OnnxOp> TransformerImports();

}  // namespace onnxtrain
