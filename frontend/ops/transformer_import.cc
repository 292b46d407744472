// Nodes that ONNX Runtime's transformer optimizer writes (domain com.microsoft; its ContribOperators.md).
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/ops/attention_import.h"
#include "frontend/ops/nn_import.h"

namespace onnxtrain {
namespace {

struct Projected {
  Val q, k, v;  // [B,S,hidden], [B,T,hidden], [B,T,hidden of v]
};

// The additive mask of `mask`, which tells keys to attend to: [B] how many of the T, [B,T] or [B,S,T] which (≠ 0).
absl::StatusOr<Val> KeyMask(ImportContext& c, Val mask, const Projected& p) {
  const int64_t batch = p.q.dim(0), s = p.q.dim(1), t = p.k.dim(1);
  const Shape& shape = mask.shape();
  Val allowed;
  if (shape == Shape{batch}) {
    ASSIGN_OR_RETURN(const Val index, Iota(c.b(), t));
    allowed = Less(Reshape(index, {1, 1, 1, t}), Reshape(Cast(mask, DType::kInt64), {batch, 1, 1, 1}));
  } else if (shape == Shape{batch, t}) {
    allowed = Reshape(Cast(mask, DType::kBool), {batch, 1, 1, t});
  } else if (shape == Shape{batch, s, t}) {
    allowed = Reshape(Cast(mask, DType::kBool), {batch, 1, s, t});
  } else {
    return Unsupported(StrCat("a mask of type ", ToString(mask.type()), " for ", s, " queries and ", t, " keys"));
  }
  return AdditiveMask(allowed, p.q.dtype(), c.attrs().Float("mask_filter_value", -10000));
}

// The sum of all masks that the node has; invalid where it has none.
absl::StatusOr<Val> Masks(ImportContext& c, const Projected& p, size_t key_mask, size_t bias) {
  Val sum;
  auto add = [&](Val mask) { sum = sum ? sum + mask : mask; };
  if (c.has(key_mask)) {
    ASSIGN_OR_RETURN(const Val mask, KeyMask(c, c.in(key_mask), p));
    add(mask);
  }
  if (c.has(bias)) add(c.in(bias));
  if (c.attrs().Int("unidirectional") != 0) {
    ASSIGN_OR_RETURN(const Val allowed, CausalMask(c.b(), p.q.dim(1), p.k.dim(1), 0));
    add(AdditiveMask(allowed, p.q.dtype(), -std::numeric_limits<double>::infinity()));
  }
  return sum;
}

ImportResult Attend(ImportContext& c, const Projected& p, size_t key_mask, size_t bias) {
  const int64_t heads = c.attrs().Int("num_heads");
  ASSIGN_OR_RETURN(const Val q, SplitHeads(p.q, heads));
  ASSIGN_OR_RETURN(const Val k, SplitHeads(p.k, heads));
  ASSIGN_OR_RETURN(const Val v, SplitHeads(p.v, heads));
  ASSIGN_OR_RETURN(const Val mask, Masks(c, p, key_mask, bias));
  double scale = c.attrs().Float("scale", 0);  // 0: the default
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.dim(3))));
  const Val y = c.b().Op("Attention", {q, k, v, mask}, {{"scale", scale}});
  return std::vector<Val>{MergeHeads(y)};
}

absl::Status RefuseCache(const ImportContext& c, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs) {
    if (c.has(i)) return Unsupported("a cache of keys and values");
  }
  for (size_t i = 1; i < c.node().used.size(); ++i) {
    if (c.node().used[i]) return Unsupported("the output of keys and values");
  }
  return absl::OkStatus();
}

// input [B,S,I], weights [I, all hidden sizes], bias; mask_index; past; attention_bias; past_sequence_length.
ImportResult ImportFusedAttention(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 2));
  RETURN_IF_ERROR(RefuseCache(c, {4, 6}));
  if (c.attrs().Int("do_rotary") != 0) return Unsupported("do_rotary");
  const Val x = c.in(0), w = c.in(1);
  if (x.rank() != 3 || w.rank() != 2) return Invalid("cannot project ", ToString(x.type()), " by ", ToString(w.type()));
  Shape sizes = c.attrs().Ints("qkv_hidden_sizes");
  if (sizes.empty()) sizes.assign(3, w.dim(1) / 3);
  if (sizes.size() != 3 || sizes[0] < 0 || sizes[1] < 0 || sizes[2] < 0 || sizes[0] > w.dim(1) || sizes[1] > w.dim(1) ||
      sizes[0] + sizes[1] + sizes[2] != w.dim(1)) {
    return Invalid("hidden sizes ", ToString(sizes), " disagree with weights ", ToString(w.type()));
  }
  Val all = MatMul(x, w);
  if (c.has(2)) all = all + c.in(2);
  const Projected p = {Slice(all, 2, 0, sizes[0]), Slice(all, 2, sizes[0], sizes[1]), Slice(all, 2, sizes[0] + sizes[1], sizes[2])};
  return Attend(c, p, 3, 5);
}

// query [B,S,Q], key [B,T,Q], value [B,T,V]; bias [Q+Q+V]; key_padding_mask; attention_bias; past_key; past_value.
ImportResult ImportMultiHeadAttention(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 1));
  if (!c.has(1) || !c.has(2)) return Unsupported("packed query, key and value");
  RETURN_IF_ERROR(RefuseCache(c, {6, 7, 8, 9}));
  for (size_t i : {0, 1, 2}) {
    if (c.in(i).rank() != 3) return Unsupported(StrCat("input ", i, " of type ", ToString(c.in(i).type())));
  }
  Projected p = {c.in(0), c.in(1), c.in(2)};
  if (c.has(3)) {
    const int64_t q = p.q.dim(2), k = p.k.dim(2), v = p.v.dim(2);
    if (c.in(3).shape() != Shape{q + k + v}) return Invalid("bias should have ", q + k + v, " numbers, got ", ToString(c.in(3).type()));
    p = {p.q + Slice(c.in(3), 0, 0, q), p.k + Slice(c.in(3), 0, q, k), p.v + Slice(c.in(3), 0, q + k, v)};
  }
  return Attend(c, p, 4, 5);
}

// --- Activations ------------------------------------------------------------------------------------------------------

Val Gelu(Val x, std::string approximate) {
  return x ? x.b().Op("Gelu", {x}, {{"approximate", std::move(approximate)}}) : x;
}

ImportResult ImportBiasGelu(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 2));
  return std::vector<Val>{Gelu(c.in(0) + c.in(1), "none")};
}

ImportResult ImportFastGelu(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 1));
  return std::vector<Val>{Gelu(c.has(1) ? c.in(0) + c.in(1) : c.in(0), "tanh")};
}

ImportResult ImportQuickGelu(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 1));
  return std::vector<Val>{c.in(0) * Sigmoid(c.in(0) * c.attrs().Float("alpha", 1.702))};
}

// --- Embedding --------------------------------------------------------------------------------------------------------

Val Rows(Val table, Val index) {
  return table.b().Op("Gather", {table, Cast(index, DType::kInt64)}, {{"axis", int64_t{0}}});
}

// input_ids [B,S], segment_ids; tables of words, positions, segments; scale, bias; mask [B,S]; position_ids.
ImportResult ImportEmbedLayerNorm(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 1));
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
  // How many tokens of each row the mask lets through; 0 where there is no mask.
  const Val kept = c.has(7) ? ReduceSum(Cast(c.in(7), DType::kInt64), {1}, false)
                            : Expand(c.b().Scalar(DType::kInt64, 0), {ids.dim(0)});
  return std::vector<Val>{y, Cast(kept, DType::kInt32), sum};
}

}  // namespace

std::span<const OnnxOp> TransformerImports() {
  static constexpr OnnxOp ops[] = {
      {"com.microsoft", "Attention", 2, 7, ImportFusedAttention},
      {"com.microsoft", "MultiHeadAttention", 1, 10, ImportMultiHeadAttention},
      {"com.microsoft", "EmbedLayerNormalization", 7, 9, ImportEmbedLayerNorm},
      {"com.microsoft", "BiasGelu", 2, 2, ImportBiasGelu},
      {"com.microsoft", "FastGelu", 1, 2, ImportFastGelu},
      {"com.microsoft", "QuickGelu", 1, 1, ImportQuickGelu},
  };
  return ops;
}

}  // namespace onnxtrain
