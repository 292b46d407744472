// Imports operators that the transformer optimizer of ONNX Runtime writes (com.microsoft; see its ContribOperators.md).
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/ops/import/attention.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

// Converts `mask` to an additive mask. The mask is [B] with the number of valid keys, [2B] with the ends and then the
// starts of their ranges, or [B,T], [B,S,T] or [B,1,M,M] with nonzero elements for valid keys.
absl::StatusOr<Val> KeyMask(ImportContext& c, Val mask, const Heads& h) {
  const int64_t batch = h.q.dim(0), s = h.q.dim(2), t = h.k.dim(2), largest = mask.rank() == 4 ? mask.dim(2) : 0;
  const Shape shape = mask.shape();
  auto numbers = [&](int64_t from) {
    return Reshape(Slice(Cast(mask, DType::kInt64), 0, from, batch), {batch, 1, 1, 1});
  };
  Val allowed;
  if (shape == Shape{batch} || shape == Shape{2 * batch}) {
    ASSIGN_OR_RETURN(const Val index, Iota(c.b(), t));
    const Val keys = Reshape(index, {1, 1, 1, t});
    allowed = Less(keys, numbers(0));
    if (shape[0] != batch) allowed = AndMasks(allowed, c.b().Op("GreaterOrEqual", {keys, numbers(batch)}));
  } else if (shape == Shape{batch, t}) {
    allowed = Reshape(Cast(mask, DType::kBool), {batch, 1, 1, t});
  } else if (shape == Shape{batch, s, t}) {
    allowed = Reshape(Cast(mask, DType::kBool), {batch, 1, s, t});
  } else if (shape == Shape{batch, 1, largest, largest} && largest >= t && t >= s) {
    allowed = Slice(Slice(Cast(mask, DType::kBool), 2, t - s, s), 3, 0, t);
  } else {
    return Unsupported(StrCat("a mask of type ", ToString(mask.type()), " for ", s, " queries and ", t, " keys"));
  }
  return AdditiveMask(allowed, h.q.dtype(), c.attrs().Float("mask_filter_value", -10000));
}

// Builds attention with the masks in inputs `key_mask` and `bias`. Returns [B,S,hidden].
absl::StatusOr<Val> BuildMaskedAttention(ImportContext& c, Heads h, size_t key_mask, size_t bias) {
  RETURN_IF_ERROR(h.Check());
  if (c.has(key_mask)) {
    ASSIGN_OR_RETURN(h.bias, KeyMask(c, c.in(key_mask), h));
  }
  if (c.has(bias)) h.bias = h.bias ? h.bias + c.in(bias) : c.in(bias);
  if (c.attrs().Int("unidirectional") != 0) {
    ASSIGN_OR_RETURN(h.allowed, CausalMask(c.b(), h.q.dim(2), h.k.dim(2), h.past));
  }
  h.scale = c.attrs().Float("scale", 0);
  ASSIGN_OR_RETURN(const AttentionResult a, BuildAttention(c.b(), h));
  return MergeHeads(a.y);
}

// Returns keys (0) or values (1) of a cache [2,B,H,P,D].
Val HalfOfCache(Val past, int64_t which) {
  const Val half = Slice(past, 0, which, 1);
  return Reshape(half, {past.dim(1), past.dim(2), past.dim(3), past.dim(4)});
}

Val JoinedCache(Val k, Val v) {
  const Shape one = {1, k.dim(0), k.dim(1), k.dim(2), k.dim(3)};
  return k.shape() == v.shape() ? Concat({Reshape(k, one), Reshape(v, one)}, 0) : Val();
}

// Imports attention of `all`, queries, keys and values [B,S,all hidden sizes], and inputs mask_index (3), past,
// attention_bias and past_sequence_length.
ImportOr AttendProjected(ImportContext& c, Val all) {
  if (c.has(6)) return Unsupported("a cache that is shared with its successor (past_sequence_length)");
  if (c.attrs().Int("do_rotary") != 0) return Unsupported("do_rotary");
  if (all.rank() != 3) return Invalid("cannot attend in ", ToString(all.type()));
  const int64_t hidden = all.dim(2);
  Shape sizes = c.attrs().Ints("qkv_hidden_sizes");
  if (sizes.empty()) sizes.assign(3, hidden / 3);
  if (sizes.size() != 3 || sizes[0] < 0 || sizes[1] < 0 || sizes[2] < 0 || sizes[0] > hidden || sizes[1] > hidden ||
      sizes[0] + sizes[1] + sizes[2] != hidden) {
    return Invalid("hidden sizes ", ToString(sizes), " disagree with ", hidden, " columns of weights");
  }
  Heads h;
  const int64_t heads = c.attrs().Int("num_heads");
  ASSIGN_OR_RETURN(h.q, SplitHeads(Slice(all, 2, 0, sizes[0]), heads));
  ASSIGN_OR_RETURN(h.k, SplitHeads(Slice(all, 2, sizes[0], sizes[1]), heads));
  ASSIGN_OR_RETURN(h.v, SplitHeads(Slice(all, 2, sizes[0] + sizes[1], sizes[2]), heads));
  if (c.has(4)) {
    if (c.in(4).rank() != 5 || c.in(4).dim(0) != 2)
      return Invalid("past should be [2,B,H,P,D], got ", ToString(c.in(4).type()));
    RETURN_IF_ERROR(PrependCache(&h, HalfOfCache(c.in(4), 0), HalfOfCache(c.in(4), 1)));
  }
  ASSIGN_OR_RETURN(const Val y, BuildMaskedAttention(c, h, 3, 5));
  const bool present = c.node().used.size() > 1 && c.node().used[1];
  return std::vector<Val>{y, present ? JoinedCache(h.k, h.v) : Val()};
}

// Imports Attention of input [B,S,I], weights [I, all hidden sizes], bias, and what AttendProjected reads.
ImportOr ImportFusedAttention(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  const Val x = c.in(0), w = c.in(1);
  if (x.rank() != 3 || w.rank() != 2) return Invalid("cannot project ", ToString(x.type()), " by ", ToString(w.type()));
  const Val all = MatMul(x, w);
  return AttendProjected(c, c.has(2) ? all + c.in(2) : all);
}

ImportOr ImportProjectedAttention(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  return AttendProjected(c, c.in(0));
}

// Adds the bias, a concatenation of the biases of query, key and value, to inputs [B,S,hidden].
absl::Status AddBias(ImportContext& c, Val* q, Val* k, Val* v) {
  if (!c.has(3)) return absl::OkStatus();
  int64_t at = 0;
  const int64_t total = q->dim(2) + k->dim(2) + v->dim(2);
  if (c.in(3).shape() != Shape{total})
    return Invalid("bias should have ", total, " numbers, got ", ToString(c.in(3).type()));
  for (Val* x : {q, k, v}) {
    *x = *x + Slice(c.in(3), 0, at, x->dim(2));
    at += x->dim(2);
  }
  return absl::OkStatus();
}

// Returns part `which` of x [B,S,H,parts,D] as [B,S,H·D].
Val Unpacked(Val x, int64_t which) { return Reshape(Slice(x, 3, which, 1), {x.dim(0), x.dim(1), x.dim(2) * x.dim(4)}); }

// Reads query, key and value in any of their forms: three tensors; all packed into the query [B,S,H,3,D]; keys and
// values packed into the key [B,T,H,2,D]; or keys and values by head, [B,H,T,D], to which no bias is added.
absl::Status ReadForms(ImportContext& c, Heads* h) {
  const int64_t heads = c.attrs().Int("num_heads");
  Val q = c.in(0), k = c.in(1), v = c.in(2);
  if (q.rank() == 5 && !k && !v && q.dim(3) == 3) {
    k = Unpacked(q, 1), v = Unpacked(q, 2), q = Unpacked(q, 0);
  } else if (k && k.rank() == 5 && !v && k.dim(3) == 2) {
    v = Unpacked(k, 1), k = Unpacked(k, 0);
  }
  if (!k || !v || q.rank() != 3)
    return Unsupported(StrCat("a query of type ", ToString(q.type()), " with these keys and values"));
  if (k.rank() == 4 && v.rank() == 4) {
    if (c.has(3)) {
      if (c.in(3).rank() != 1 || c.in(3).dim(0) < q.dim(2))
        return Invalid("bias ", ToString(c.in(3).type()), " is too short");
      q = q + Slice(c.in(3), 0, 0, q.dim(2));
    }
    ASSIGN_OR_RETURN(h->q, SplitHeads(q, heads));
    h->k = k;
    h->v = v;
    return absl::OkStatus();
  }
  if (k.rank() != 3 || v.rank() != 3) return Unsupported(StrCat("keys of type ", ToString(k.type())));
  RETURN_IF_ERROR(AddBias(c, &q, &k, &v));
  ASSIGN_OR_RETURN(h->q, SplitHeads(q, heads));
  ASSIGN_OR_RETURN(h->k, SplitHeads(k, heads));
  ASSIGN_OR_RETURN(h->v, SplitHeads(v, heads));
  return absl::OkStatus();
}

// Imports MultiHeadAttention of query, key, value, bias, key_padding_mask, attention_bias, past_key and past_value.
ImportOr ImportMultiHeadAttention(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  if (c.has(8) || c.has(9)) return Unsupported("a cache that is shared with its successor (past_sequence_length)");
  if (c.node().used.size() > 3 && c.node().used[3]) return Unsupported("the output qk");
  Heads h;
  RETURN_IF_ERROR(ReadForms(c, &h));
  RETURN_IF_ERROR(PrependCache(&h, c.in(6), c.in(7)));
  ASSIGN_OR_RETURN(const Val y, BuildMaskedAttention(c, h, 4, 5));
  return std::vector<Val>{y, h.k, h.v};
}

Val Gelu(Val x, std::string approximate) {
  return x ? x.b().Op("Gelu", {x}, {{"approximate", std::move(approximate)}}) : x;
}

ImportOr ImportBiasGelu(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  return std::vector<Val>{Gelu(c.in(0) + c.in(1), "none")};
}

ImportOr ImportFastGelu(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  return std::vector<Val>{Gelu(c.has(1) ? c.in(0) + c.in(1) : c.in(0), "tanh")};
}

ImportOr ImportQuickGelu(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  return std::vector<Val>{c.in(0) * Sigmoid(c.in(0) * c.attrs().Float("alpha", 1.702))};
}

Val Rows(Val table, Val index) {
  return table.b().Op("Gather", {table, Cast(index, DType::kInt64)}, {{"axis", int64_t{0}}});
}

// Imports EmbedLayerNormalization of input_ids [B,S], segment_ids, tables of words, positions and segments, scale,
// bias, mask [B,S] and position_ids.
ImportOr ImportEmbedLayerNorm(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 1));
  for (size_t i : {2, 3, 5, 6}) {
    if (!c.has(i)) return Invalid("input ", i, " is missing");
  }
  const Val ids = c.in(0);
  if (ids.rank() != 2 || c.in(2).rank() != 2) return Invalid("expected ids [B,S], got ", ToString(ids.type()));
  if (c.has(1) != c.has(4)) return Invalid("segment ids and their table must come together");
  Val sum = Rows(c.in(2), ids);
  ASSIGN_OR_RETURN(const Val count, Iota(c.b(), ids.dim(1)));
  sum = sum + Rows(c.in(3), c.has(8) ? c.in(8) : count);
  if (c.has(1)) sum = sum + Rows(c.in(4), c.in(1));
  if (!sum) return std::vector<Val>{sum};
  const Val y = c.b().Op("LayerNorm", {sum, c.in(5), c.in(6)},
                         {{"axis", int64_t{sum.rank() - 1}}, {"epsilon", c.attrs().Float("epsilon", 1e-12)}});
  // Counts the tokens of each row that the mask keeps; 0 without a mask.
  const Val kept = c.has(7) ? ReduceSum(Cast(c.in(7), DType::kInt64), {1}, false)
                            : Expand(c.b().Scalar(DType::kInt64, 0), {ids.dim(0)});
  return std::vector<Val>{y, Cast(kept, DType::kInt32), sum};
}

}  // namespace

std::span<const OnnxOp> TransformerImports() {
  static constexpr OnnxOp ops[] = {
      {"com.microsoft", "Attention", 2, 7, ImportFusedAttention, {.weight_inputs = 0b110}},
      {kRowDomain, kProjectedAttention, 1, 7, ImportProjectedAttention},
      {"com.microsoft", "MultiHeadAttention", 1, 10, ImportMultiHeadAttention},
      {"com.microsoft", "EmbedLayerNormalization", 1, 9, ImportEmbedLayerNorm, {.weight_inputs = 0b1100000}},
      {"com.microsoft", "BiasGelu", 2, 2, ImportBiasGelu, {.weight_inputs = 0b10}},
      {"com.microsoft", "FastGelu", 1, 2, ImportFastGelu, {.weight_inputs = 0b10}},
      {"com.microsoft", "QuickGelu", 1, 1, ImportQuickGelu},
  };
  return ops;
}

}  // namespace onnxtrain
