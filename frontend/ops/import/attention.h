// Helpers for attention nodes of ai.onnx and of ONNX Runtime's fusions.
#pragma once

#include <optional>
#include <span>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// [B,S,H·D] → [B,H,S,D]. Fails on another rank or a number of heads that does not divide.
absl::StatusOr<Val> SplitHeads(Val x, int64_t heads);
// [B,H,S,D] → [B,S,H·D]
Val MergeHeads(Val x);
// Returns an additive mask: 0 where `allowed` (bool) holds, else `otherwise`.
Val AdditiveMask(Val allowed, DType type, double otherwise);
// [S,T], bool: query i of S, which stands at position past + i, sees keys 0 … past + i of T; with window ≥ 0, only the
// last `window` of these.
absl::StatusOr<Val> CausalMask(Builder& b, int64_t s, int64_t t, int64_t past, int64_t window = -1);
// Returns the conjunction of two conditions. An invalid Val is always true.
Val AndMasks(Val a, Val b);

// Attention over heads. Masks broadcast to [B,H,S,T].
struct Heads {
  Val q, k, v;         // [B,H,S,D], [B,G,T,D], [B,G,T,E]: each of the G serves H/G query heads in a row
  Val allowed;         // bool, which keys a query sees; a query that sees none gives zeros. Invalid: all
  Val bias;            // float, added to the scores; may be invalid
  double scale = 0;    // 0: 1/√D
  double softcap = 0;  // c: scores become c·tanh(scores/c) before masks; 0: no cap
  Val sink;  // [H]: a further score per head that takes its share of the softmax and gives nothing; may be invalid
  std::optional<DType> softmax;  // where scores are to be normalized in another type

  // Fails on incompatible shapes.
  absl::Status Check() const;
  int64_t past = 0;  // how many of the T keys come from a cache
};
// Prepends a cache [B,G,P,D] to keys and values.
absl::Status PrependCache(Heads* h, Val past_key, Val past_value);

struct AttentionResult {
  Val y;  // [B,H,S,E]
  Val products, capped, scores,
      weights;  // [B,H,S,T]; only with `scores`: scaled q·kᵀ, that with the cap, masks added, softmax
};
// Builds one Attention operator, or primitives where the node reads or modifies the scores.
absl::StatusOr<AttentionResult> BuildAttention(Builder& b, const Heads& h, bool scores = false);

// x [B,H,S,D] with the first 2R components of each head rotated by angles whose cosines and sines are [B or 1,1,S,R];
// pairs are (i, i + R), or (2i, 2i + 1) where interleaved (Su et al., 2021, arXiv:2104.09864).
absl::StatusOr<Val> Rotate(Val x, Val cos, Val sin, bool interleaved);
// Gathers rows of a table [P,R] for positions [B or 1,S], in the shape for Rotate. The table is not trained.
absl::StatusOr<Val> RotaryRows(ImportContext& c, size_t table, Val positions);
// Returns positions past … past + s − 1, as [1,S].
absl::StatusOr<Val> Positions(Builder& b, int64_t s, int64_t past);

// RotaryEmbedding of both domains; the rest of the domain com.microsoft.
std::span<const OnnxOp> RotaryImports();
std::span<const OnnxOp> TransformerImports();
std::span<const OnnxOp> GroupedAttentionImports();
std::span<const OnnxOp> FusedOpImports();

}  // namespace onnxtrain
