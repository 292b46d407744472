// com.microsoft.GroupQueryAttention, as decoders are exported for generation.
#include <algorithm>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/attention.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/nn.h"

namespace onnxtrain {
namespace {

// Query, key and value, or all three packed into the query: H + 2G heads in a row.
absl::Status ReadPacked(ImportContext& c, Heads* h) {
  const int64_t heads = c.attrs().Int("num_heads"), groups = c.attrs().Int("kv_num_heads");
  if (c.has(1) != c.has(2)) return Invalid("key and value must come together");
  if (c.has(1)) {
    ASSIGN_OR_RETURN(h->q, SplitHeads(c.in(0), heads));
    ASSIGN_OR_RETURN(h->k, SplitHeads(c.in(1), groups));
    ASSIGN_OR_RETURN(h->v, SplitHeads(c.in(2), groups));
    return absl::OkStatus();
  }
  constexpr int64_t kMax = 1 << 20;
  if (heads < 1 || groups < 1 || heads > kMax || groups > kMax) return Invalid(heads, " and ", groups, " heads");
  ASSIGN_OR_RETURN(const Val all, SplitHeads(c.in(0), heads + 2 * groups));
  h->q = Slice(all, 1, 0, heads);
  h->k = Slice(all, 1, heads, groups);
  h->v = Slice(all, 1, heads + groups, groups);
  return absl::OkStatus();
}

// The keys of a cache, and how many of them count for each sample: seqlens_k + 1 − s. The others are room for later.
struct Cache {
  int64_t keys = 0;
  Val filled;  // i64 [B,1,1,1]; invalid: all of them
};

absl::StatusOr<Cache> ReadCache(ImportContext& c, int64_t batch, int64_t s) {
  Cache cache = {.keys = c.has(3) ? c.in(3).dim(2) : 0};
  if (cache.keys == 0) return cache;
  if (!c.has(5) || c.in(5).type().elements() != batch)
    return Invalid("seqlens_k should hold ", batch, " numbers for a cache of ", cache.keys, " keys");
  const HostTensor* lengths = c.Known(5);
  const std::vector<int64_t> last = lengths == nullptr ? std::vector<int64_t>() : lengths->ToInts();
  if (!last.empty() && std::ranges::all_of(last, [&](int64_t k) { return k == cache.keys + s - 1; })) return cache;
  cache.filled = Reshape(Cast(c.in(5), DType::kInt64), {batch, 1, 1, 1}) + static_cast<double>(1 - s);
  return cache;
}

// Positions of the keys of a cache and behind it, [B,1,1,T]: new keys follow those that count.
absl::StatusOr<Val> KeyPositions(Builder& b, const Cache& cache, int64_t keys) {
  ASSIGN_OR_RETURN(const Val index, Positions(b, keys, 0));
  const Val fresh = index - static_cast<double>(cache.keys);
  return Where(Less(fresh, 0), index, fresh + cache.filled);
}

// Which keys a query sees where a cache has room: none of the room, and none behind the query.
absl::StatusOr<Val> SeenInCache(Builder& b, const Cache& cache, int64_t s, int64_t keys, int64_t window) {
  ASSIGN_OR_RETURN(const Val index, Positions(b, keys, 0));
  ASSIGN_OR_RETURN(const Val key, KeyPositions(b, cache, keys));
  ASSIGN_OR_RETURN(const Val row, Positions(b, s, 0));
  const Val query = Reshape(row, {s, 1}) + cache.filled;
  const Val is_new = b.Op("GreaterOrEqual", {index, Number(index, static_cast<double>(cache.keys))});
  const Val counts = b.Op("Or", {is_new, Less(index, cache.filled)});
  const Val seen = AndMasks(counts, b.Op("GreaterOrEqual", {query, key}));
  return window < 0 ? seen : AndMasks(seen, Less(query - key, static_cast<double>(window)));
}

// Keys or values in the order of their positions, room at the end.
absl::StatusOr<Val> InOrder(Builder& b, const Cache& cache, Val x) {
  if (!cache.filled) return x;
  const int64_t keys = x.dim(2);
  ASSIGN_OR_RETURN(const Val position, Positions(b, keys, 0));
  const Val at = Reshape(position, {1, 1, keys, 1});
  const Val index = Where(Less(at, cache.filled), at, at - cache.filled + static_cast<double>(cache.keys));
  const Val last = Number(index, static_cast<double>(keys - 1));
  return b.Op("GatherElements", {x, Expand(b.Op("Min", {index, last}), x.shape())}, {{"axis", int64_t{2}}});
}

absl::Status RotateQueriesAndKeys(ImportContext& c, Heads* h, const Cache& cache) {
  if (c.attrs().Int("do_rotary") == 0) return absl::OkStatus();
  if (!c.has(7) || !c.has(8)) return Invalid("do_rotary needs cos_cache and sin_cache");
  Val positions = c.in(9);
  if (!positions) {
    ASSIGN_OR_RETURN(positions, Positions(c.b(), h->q.dim(2), cache.filled ? 0 : cache.keys));
    if (cache.filled) positions = positions + Reshape(cache.filled, {h->q.dim(0), 1});
  }
  ASSIGN_OR_RETURN(const Val cos, RotaryRows(c, 7, positions));
  ASSIGN_OR_RETURN(const Val sin, RotaryRows(c, 8, positions));
  const bool interleaved = c.attrs().Int("rotary_interleaved") != 0;
  for (Val* x : {&h->q, &h->k}) {
    ASSIGN_OR_RETURN(*x, Rotate(*x, Cast(cos, x->dtype()), Cast(sin, x->dtype()), interleaved));
  }
  return absl::OkStatus();
}

ImportResult ImportGroupQueryAttention(ImportContext& c) {
  Heads h;
  RETURN_IF_ERROR(ReadPacked(c, &h));
  RETURN_IF_ERROR(h.Check());
  const int64_t s = h.q.dim(2), window = c.attrs().Int("local_window_size", -1);
  ASSIGN_OR_RETURN(const Cache cache, ReadCache(c, h.q.dim(0), s));
  RETURN_IF_ERROR(RotateQueriesAndKeys(c, &h, cache));
  RETURN_IF_ERROR(PrependCache(&h, c.in(3), c.in(4)));
  if (c.node().used.size() > 3 && c.node().used[3]) return Unsupported("the output output_qk");
  if (cache.filled) {
    ASSIGN_OR_RETURN(h.allowed, SeenInCache(c.b(), cache, s, h.k.dim(2), window));
  } else {
    ASSIGN_OR_RETURN(h.allowed, CausalMask(c.b(), s, h.k.dim(2), h.past, window));
  }
  h.bias = c.in(10);
  h.scale = c.attrs().Float("scale", 0);
  h.softcap = c.attrs().Float("softcap", 0);
  h.sink = c.in(11);
  if (!h.sink && c.attrs().Int("smooth_softmax") > 0) h.sink = Expand(c.b().Scalar(h.q.dtype(), 0), {h.q.dim(1)});
  ASSIGN_OR_RETURN(const AttentionResult a, BuildAttention(c.b(), h));
  ASSIGN_OR_RETURN(const Val keys, InOrder(c.b(), cache, h.k));
  ASSIGN_OR_RETURN(const Val values, InOrder(c.b(), cache, h.v));
  return std::vector<Val>{MergeHeads(a.y), keys, values};
}

}  // namespace

std::span<const OnnxOp> GroupedAttentionImports() {
  static constexpr OnnxOp ops[] = {{"com.microsoft", "GroupQueryAttention", 1, 12, ImportGroupQueryAttention}};
  return ops;
}

}  // namespace onnxtrain
