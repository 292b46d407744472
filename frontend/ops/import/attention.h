// Helpers for importing attention nodes of ai.onnx and com.microsoft.
#pragma once

#include <optional>
#include <span>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Reshapes [B,S,H·D] to [B,H,S,D]. Fails on another rank, or if `heads` does not divide the last axis.
absl::StatusOr<Val> SplitHeads(Val x, int64_t heads);
// Reshapes [B,H,S,D] to [B,S,H·D].
Val MergeHeads(Val x);
// Returns an additive mask: 0 where `allowed` (bool) is true, else `otherwise`.
Val AdditiveMask(Val allowed, DType type, double otherwise);
// Returns a bool mask [S,T] in which query i, at position past + i, sees keys 0 … past + i, or, with window ≥ 0, only
// the last `window` of these.
absl::StatusOr<Val> CausalMask(Builder& b, int64_t s, int64_t t, int64_t past, int64_t window = -1);
// Returns the conjunction of two conditions. An invalid Val is always true.
Val AndMasks(Val a, Val b);

// The operands of attention over heads. Masks broadcast to [B,H,S,T].
struct Heads {
  Val q, k, v;         // [B,H,S,D], [B,G,T,D], [B,G,T,E]: each of the G heads serves H/G consecutive query heads
  Val allowed;         // bool: the keys that a query sees; the result of a query without keys is 0. Invalid: all keys
  Val bias;            // float, added to the scores; may be invalid
  double scale = 0;    // 0: 1/√D
  double softcap = 0;  // c: scores become c·tanh(scores/c) before masks are added; 0: no cap
  Val sink;            // [H]: an additional score per head in the denominator of the softmax; may be invalid
  std::optional<DType> softmax;  // type in which scores are normalized; nullopt: the type of q

  // Fails on incompatible shapes.
  absl::Status Check() const;
  int64_t past = 0;  // number of the T keys that come from a cache
};
// Prepends a cache [B,G,P,D] to keys and values.
absl::Status PrependCache(Heads* h, Val past_key, Val past_value);

struct AttentionResult {
  Val y;  // [B,H,S,E]
  Val products, capped, scores,
      weights;  // [B,H,S,T], only with `scores`: scaled q·kᵀ; after the cap; after adding masks; after the softmax
};
// Builds one Attention operator, or primitives if the node returns or modifies the scores.
absl::StatusOr<AttentionResult> BuildAttention(Builder& b, const Heads& h, bool scores = false);

// Rotates the first 2R components of each head of x [B,H,S,D] by angles with cosines and sines [B or 1,1,S,R]. Rotates
// pairs (i, i + R) or, if `interleaved`, (2i, 2i + 1) (Su et al., 2021, arXiv:2104.09864).
absl::StatusOr<Val> Rotate(Val x, Val cos, Val sin, bool interleaved);
// Gathers the rows of a table [P,R] at positions [B or 1,S], in the shape for Rotate. The table is not trained.
absl::StatusOr<Val> RotaryRows(ImportContext& c, size_t table, Val positions);
// Returns positions past … past + s − 1, as [1,S].
absl::StatusOr<Val> Positions(Builder& b, int64_t s, int64_t past);

// Parts of the attention family: RotaryEmbedding of both domains, and other operators of com.microsoft.
std::span<const OnnxOp> RotaryImports();
std::span<const OnnxOp> TransformerImports();
std::span<const OnnxOp> GroupedAttentionImports();
std::span<const OnnxOp> FusedOpImports();

}  // namespace onnxtrain
