#include "frontend/ops/import/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/mixture.h"

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

absl::StatusOr<Val> CausalMask(Builder& b, int64_t s, int64_t t, int64_t past, int64_t window) {
  ASSIGN_OR_RETURN(const Val rows, Positions(b, s, past));
  ASSIGN_OR_RETURN(const Val columns, Iota(b, t));
  const Val query = Reshape(rows, {s, 1}), key = Reshape(columns, {1, t});
  const Val seen = b.Op("GreaterOrEqual", {query, key});
  if (window < 0) return seen;
  const Val far = b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&window, 1}));
  return AndMasks(seen, Less(query - key, far));
}

Val AndMasks(Val a, Val b) {
  if (!a || !b) return a ? a : b;
  return a.b().Op("And", {a, b});
}

absl::StatusOr<Val> Positions(Builder& b, int64_t s, int64_t past) {
  ASSIGN_OR_RETURN(const Val index, Iota(b, s));
  return Reshape(past == 0 ? index : index + b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&past, 1})), {1, s});
}

absl::Status Heads::Check() const {
  if (!q || !k || !v) return q ? q.b().status() : Invalid("queries, keys or values are missing");
  const bool ranks = q.rank() == 4 && k.rank() == 4 && v.rank() == 4;
  if (!ranks || k.dim(1) < 1 || q.dim(1) % k.dim(1) != 0 || v.dim(1) != k.dim(1)) {
    return Invalid("queries ", ToString(q.type()), " cannot share the heads of keys ", ToString(k.type()),
                   " and values ", ToString(v.type()));
  }
  return absl::OkStatus();
}

absl::Status PrependCache(Heads* h, Val past_key, Val past_value) {
  if (past_key.valid() != past_value.valid()) return Invalid("past keys and values must come together");
  if (!past_key) return absl::OkStatus();
  if (past_key.rank() != 4 || past_value.rank() != 4)
    return Invalid("past keys should have 4 axes, got ", ToString(past_key.type()));
  h->past = past_key.dim(2);
  if (h->past == 0) return absl::OkStatus();
  h->k = Concat({past_key, h->k}, 2);
  h->v = Concat({past_value, h->v}, 2);
  return absl::OkStatus();
}

namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

Val RepeatHeads(Val x, int64_t times) {
  if (times == 1) return x;
  const Val wide =
      Expand(Reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)}), {x.dim(0), x.dim(1), times, x.dim(2), x.dim(3)});
  return Reshape(wide, {x.dim(0), x.dim(1) * times, x.dim(2), x.dim(3)});
}

// Returns true if every query is known to see a key, for all feeds.
bool AllSee(Val allowed) {
  const HostTensor* known = allowed.constant();
  const int64_t keys = allowed.dim(-1);
  if (known == nullptr || keys < 1) return false;
  const auto seen = known->data<uint8_t>();
  for (size_t row = 0; row < seen.size(); row += keys) {
    if (std::none_of(seen.begin() + row, seen.begin() + row + keys, [](uint8_t s) { return s != 0; })) return false;
  }
  return true;
}

Val AdditiveMask(const Heads& h) {
  const Val allowed = AdditiveMask(h.allowed, h.q.dtype(), kMinusInf);
  if (!h.bias) return allowed;
  const Val bias = Cast(h.bias, h.q.dtype());
  return allowed ? allowed + bias : bias;
}

// The masks of attention. `additive` is the mask. In `open`, queries that see no key see all keys, so that the softmax
// is not NaN; `hidden` (invalid: no query) marks these queries, whose results are replaced by 0.
struct Masking {
  Val additive, open, hidden;
};

Masking MakeMasking(const Heads& h) {
  Masking m;
  m.additive = m.open = AdditiveMask(h);
  if (!m.open || (!h.bias && AllSee(h.allowed))) return m;
  m.hidden = Equal(m.open.rank() == 0 ? m.open : ReduceMax(m.open, {-1}), kMinusInf);
  m.open = Where(m.hidden, Number(m.open, 0), m.open);
  return m;
}

// Computes the softmax over the keys and, if present, the sink.
Val Normalized(Val scores, const Heads& h) {
  if (!scores) return scores;
  DType type = h.softmax.value_or(scores.dtype());
  if (DTypeSize(type) < 4) type = DType::kFloat32;  // exponentials of 16-bit types are computed in float32
  Val wide = Cast(scores, type);
  const int64_t keys = wide.dim(-1);
  if (h.sink) {
    Shape shape = wide.shape();
    shape.back() = 1;
    wide = Concat({wide, Expand(Reshape(Cast(h.sink, type), {1, shape[1], 1, 1}), shape)}, 3);
  }
  const Val weights = wide.b().Op("Softmax", {wide}, {{"axis", int64_t{3}}});
  return Cast(h.sink ? Slice(weights, 3, 0, keys) : weights, scores.dtype());
}

AttentionResult BuildPrimitiveAttention(const Heads& h, Val k, Val v, double scale) {
  const Masking m = MakeMasking(h);
  AttentionResult a;
  a.products = MatMul(h.q, k, false, true) * scale;
  a.capped = h.softcap != 0 ? Tanh(a.products / h.softcap) * h.softcap : a.products;
  a.scores = m.additive ? a.capped + m.additive : a.capped;
  a.weights = Normalized(m.open ? a.capped + m.open : a.capped, h);
  if (m.hidden) a.weights = Where(m.hidden, Number(a.weights, 0), a.weights);
  a.y = MatMul(a.weights, v);
  return a;
}

}  // namespace

absl::StatusOr<AttentionResult> BuildAttention(Builder& b, const Heads& h, bool scores) {
  RETURN_IF_ERROR(h.Check());
  const int64_t times = h.q.dim(1) / h.k.dim(1);
  const Val k = RepeatHeads(h.k, times), v = RepeatHeads(h.v, times);
  const double scale = h.scale != 0 ? h.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, h.q.dim(3))));
  AttentionResult a;
  if (scores || h.sink || (h.softmax && *h.softmax != h.q.dtype())) {
    a = BuildPrimitiveAttention(h, k, v, scale);
  } else {
    a.y = b.Op("Attention", {h.q, k, v, AdditiveMask(h)}, {{"scale", scale}, {"softcap", h.softcap}});
  }
  return a.y ? absl::StatusOr<AttentionResult>(a) : b.status();
}

namespace {

// Returns input i as [B,H,S,D], which it may already be.
absl::StatusOr<Val> ReadHeads(const ImportContext& c, size_t i, std::string_view attribute) {
  if (c.in(i).rank() == 4) return c.in(i);
  return SplitHeads(c.in(i), c.attrs().Int(attribute));
}

// Extends a mask to `keys` keys; no query sees the additional keys.
Val WidenedTo(Val mask, int64_t keys) {
  const int64_t missing = keys - mask.dim(-1);
  if (mask.rank() == 0 || mask.dim(-1) <= 1 || missing <= 0) return mask;
  Shape shape = mask.shape();
  shape.back() = missing;
  const Val none = mask.b().Scalar(mask.dtype(), mask.dtype() == DType::kBool ? 0 : kMinusInf);
  return Concat({mask, Expand(none, shape)}, mask.rank() - 1);
}

// Returns true for ONNX's first test cases with qk_matmul_output_mode 1, which expect masked products there, and count
// queries from 0 despite a cache. ONNX 1.23 corrected the text and the cases of all versions.
bool AsFirstPublished(const ImportContext& c) {
  return c.conformance && c.attrs().Int("qk_matmul_output_mode") == 1 && c.attrs().Float("softcap") == 0;
}

// Returns nonpad_kv_seqlen as [B,1,1,1]; invalid if absent.
absl::StatusOr<Val> KeyCounts(ImportContext& c, const Heads& h) {
  if (!c.has(6)) return Val();
  if (c.has(4)) return Invalid("past_key and nonpad_kv_seqlen exclude each other");
  const int64_t batch = h.q.dim(0);
  if (c.in(6).shape() != Shape{batch})
    return Invalid("nonpad_kv_seqlen should be [", batch, "], got ", ToString(c.in(6).type()));
  return Reshape(Cast(c.in(6), DType::kInt64), {batch, 1, 1, 1});
}

// Returns the mask of keys at most `size` positions before the query or, with sign −1, after it. Invalid (no limit) for
// a negative `size`.
Val WithinWindow(Val query, Val key, int64_t size, double sign) {
  if (size < 0) return Val();
  const Val distance = (query - key) * sign;
  return distance.b().Op("LessOrEqual", {distance, Number(distance, static_cast<double>(size))});
}

// Returns the mask by positions: causality and windows. Queries follow the keys of the cache or, if `counts` is valid,
// are the last of `counts` keys.
absl::StatusOr<Val> SeenByPosition(ImportContext& c, const Heads& h, Val counts) {
  const int64_t s = h.q.dim(2), t = h.k.dim(2), past = AsFirstPublished(c) ? 0 : h.past;
  ASSIGN_OR_RETURN(const Val queries, Positions(c.b(), s, counts ? -s : past));
  ASSIGN_OR_RETURN(const Val key, Positions(c.b(), t, 0));
  const Val in_block = Reshape(queries, {s, 1}), query = counts ? in_block + counts : in_block;
  const auto window = [&](std::string_view side) { return std::min(c.attrs().Int(side, -1), s + t + past); };
  Val seen = counts ? Less(key, counts) : Val();
  if (c.attrs().Int("is_causal") != 0) seen = AndMasks(seen, WithinWindow(query, key, 0, -1));
  seen = AndMasks(seen, WithinWindow(query, key, window("left_window_size"), 1));
  return AndMasks(seen, WithinWindow(query, key, window("right_window_size"), -1));
}

absl::Status ReadMasks(ImportContext& c, Heads* h) {
  if (c.has(3)) {
    const Val mask = WidenedTo(c.in(3), h->k.dim(2));
    (mask.dtype() == DType::kBool ? h->allowed : h->bias) = mask;
  }
  ASSIGN_OR_RETURN(const Val counts, KeyCounts(c, *h));
  ASSIGN_OR_RETURN(const Val seen, SeenByPosition(c, *h, counts));
  h->allowed = AndMasks(seen, h->allowed);
  return absl::OkStatus();
}

absl::StatusOr<Val> ScoresOfMode(const ImportContext& c, const AttentionResult& a) {
  const Val modes[] = {a.products, AsFirstPublished(c) ? a.scores : a.capped, a.scores, a.weights};
  const int64_t mode = c.attrs().Int("qk_matmul_output_mode");
  if (mode < 0 || mode > 3) return Invalid("qk_matmul_output_mode ", mode, " does not exist");
  return modes[mode];
}

ImportOr ImportAttention(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 3));
  Heads h;
  ASSIGN_OR_RETURN(h.q, ReadHeads(c, 0, "q_num_heads"));
  ASSIGN_OR_RETURN(h.k, ReadHeads(c, 1, "kv_num_heads"));
  ASSIGN_OR_RETURN(h.v, ReadHeads(c, 2, "kv_num_heads"));
  RETURN_IF_ERROR(PrependCache(&h, c.in(4), c.in(5)));
  RETURN_IF_ERROR(h.Check());
  RETURN_IF_ERROR(ReadMasks(c, &h));
  h.scale = c.attrs().Float("scale", 0);
  h.softcap = c.attrs().Float("softcap");
  if (c.attrs().Has("softmax_precision")) {
    ASSIGN_OR_RETURN(h.softmax, ElementType(c.attrs().Int("softmax_precision")));
    if (!IsFloat(*h.softmax)) return Invalid("softmax_precision ", ToString(*h.softmax), " is no float type");
  }
  const bool scores = c.node().used.size() > 3 && c.node().used[3];
  ASSIGN_OR_RETURN(const AttentionResult a, BuildAttention(c.b(), h, scores));
  std::vector<Val> results = {c.in(0).rank() == 3 ? MergeHeads(a.y) : a.y, h.k, h.v};
  if (scores) {
    ASSIGN_OR_RETURN(const Val output, ScoresOfMode(c, a));
    results.push_back(output);
  }
  return results;
}

}  // namespace

std::span<const OnnxOp> AttentionImports() {
  static const std::vector<OnnxOp> ops = [] {
    std::vector<OnnxOp> all = {{"", "Attention", 3, 7, ImportAttention, {.type_attr = "softmax_precision"}}};
    for (auto family : {RotaryImports, TransformerImports, GroupedAttentionImports, FusedOpImports, MixtureImports}) {
      all.insert(all.end(), family().begin(), family().end());
    }
    return all;
  }();
  return ops;
}

}  // namespace onnxtrain
