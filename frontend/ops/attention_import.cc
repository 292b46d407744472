#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/ops/attention_import.h"
#include "frontend/ops/nn_import.h"

namespace onnxtrain {

absl::StatusOr<Val> SplitHeads(Val x, int64_t heads) {
  if (x.rank() != 3) return Invalid("expected 3 axes, the last for all heads, got ", ToString(x.type()));
  if (heads < 1 || x.dim(2) % heads != 0) return Invalid(heads, " heads do not divide ", ToString(x.type()));
  return Transpose(Reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

Val MergeHeads(Val x) {
  const Val t = Transpose(x, {0, 2, 1, 3});
  return Reshape(t, {t.dim(0), t.dim(1), t.dim(2) * t.dim(3)});
}

Val AdditiveMask(Val allowed, DType type, double otherwise) {
  if (!allowed) return allowed;
  return Where(allowed, allowed.b().Scalar(type, 0), allowed.b().Scalar(type, otherwise));
}

absl::StatusOr<Val> CausalMask(Builder& b, int64_t s, int64_t t, int64_t past) {
  ASSIGN_OR_RETURN(const Val rows, Iota(b, s));
  ASSIGN_OR_RETURN(const Val columns, Iota(b, t));
  const Val offset = b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&past, 1}));
  return b.Op("GreaterOrEqual", {Reshape(rows + offset, {s, 1}), Reshape(columns, {1, t})});
}

namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// As SplitHeads; [B,H,S,D] stays.
absl::StatusOr<Val> HeadsOf(const ImportContext& c, size_t i, std::string_view attribute) {
  if (c.in(i).rank() == 4) return c.in(i);
  return SplitHeads(c.in(i), c.attrs().Int(attribute));
}

// Each of the [B,G,T,D] heads serves `times` query heads in a row (grouped-query attention).
Val RepeatHeads(Val x, int64_t times) {
  if (times == 1) return x;
  const Val wide = Expand(Reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)}), {x.dim(0), x.dim(1), times, x.dim(2), x.dim(3)});
  return Reshape(wide, {x.dim(0), x.dim(1) * times, x.dim(2), x.dim(3)});
}

struct Heads {
  Val q, k, v;   // [B,H,S,D], [B,G,T,D], [B,G,T,E]
  int64_t past;  // how many of the T keys come from the cache
};

absl::StatusOr<Heads> ReadHeads(ImportContext& c) {
  RETURN_IF_ERROR(NeedInputs(c, 3));
  Heads h;
  ASSIGN_OR_RETURN(h.q, HeadsOf(c, 0, "q_num_heads"));
  ASSIGN_OR_RETURN(h.k, HeadsOf(c, 1, "kv_num_heads"));
  ASSIGN_OR_RETURN(h.v, HeadsOf(c, 2, "kv_num_heads"));
  h.past = 0;
  if (c.has(4) != c.has(5)) return Invalid("past_key and past_value must come together");
  if (c.has(4)) {
    if (c.in(4).rank() != 4) return Invalid("past_key should have 4 axes, got ", ToString(c.in(4).type()));
    h.past = c.in(4).dim(2);
    h.k = Concat({c.in(4), h.k}, 2);
    h.v = Concat({c.in(5), h.v}, 2);
  }
  if (!h.q || !h.k || !h.v) return c.b().status();
  if (h.k.dim(1) < 1 || h.q.dim(1) % h.k.dim(1) != 0 || h.v.dim(1) != h.k.dim(1)) {
    return Invalid(h.q.dim(1), " query heads cannot share ", h.k.dim(1), " key and ", h.v.dim(1), " value heads");
  }
  return h;
}

absl::StatusOr<Val> ReadMask(ImportContext& c, const Heads& h) {
  const DType type = h.q.dtype();
  Val mask = c.in(3);
  if (mask) mask = mask.dtype() == DType::kBool ? AdditiveMask(mask, type, kMinusInf) : Cast(mask, type);
  if (c.attrs().Int("is_causal") == 0) return mask;
  ASSIGN_OR_RETURN(const Val allowed, CausalMask(c.b(), h.q.dim(2), h.k.dim(2), h.past));
  const Val causal = AdditiveMask(allowed, type, kMinusInf);
  return mask ? mask + causal : causal;
}

ImportResult ImportAttention(ImportContext& c) {
  if (c.attrs().Float("softcap") != 0) return Unsupported("softcap");
  if (c.node().used.size() > 3 && c.node().used[3]) return Unsupported("the output qk_matmul_output");
  if (c.has(6)) return Unsupported("nonpad_kv_seqlen");
  ASSIGN_OR_RETURN(const Heads h, ReadHeads(c));
  ASSIGN_OR_RETURN(const Val mask, ReadMask(c, h));
  const double scale = c.attrs().Float("scale", 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, h.q.dim(3)))));
  const int64_t times = h.q.dim(1) / h.k.dim(1);
  const Val y = c.b().Op("Attention", {h.q, RepeatHeads(h.k, times), RepeatHeads(h.v, times), mask}, {{"scale", scale}});
  if (!y) return c.b().status();
  return std::vector<Val>{c.in(0).rank() == 3 ? MergeHeads(y) : y, h.k, h.v};
}

}  // namespace

std::span<const OnnxOp> AttentionImports() {
  static const std::vector<OnnxOp> ops = [] {
    std::vector<OnnxOp> all = {{"", "Attention", 3, 7, ImportAttention}};
    const auto fused = TransformerImports();
    all.insert(all.end(), fused.begin(), fused.end());
    return all;
  }();
  return ops;
}

}  // namespace onnxtrain
