// Imports rotary position embeddings of ai.onnx and com.microsoft, and GroupQueryAttention of com.microsoft, which
// decoders exported for generation use.
#include <algorithm>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/attention.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"

namespace onnxtrain {

absl::StatusOr<Val> RotaryRows(ImportContext& c, size_t table, Val positions) {
  const Val rows = FixedInput(c, table);
  if (!rows || rows.rank() != 2 || positions.rank() != 2)
    return Invalid("cannot look up positions ", ToString(positions.type()), " in ", ToString(rows.type()));
  const Val found = c.b().Op("Gather", {rows, Cast(positions, DType::kInt64)}, {{"axis", int64_t{0}}});
  return Reshape(found, {found.dim(0), 1, found.dim(1), found.dim(2)});
}

absl::StatusOr<Val> Rotate(Val x, Val cos, Val sin, bool interleaved) {
  if (!x || !cos || !sin) return x ? x.b().status() : Invalid("nothing to rotate");
  const int64_t half = cos.dim(3), size = x.dim(3);
  const Shape rows = {x.dim(0), x.dim(1), x.dim(2)};
  if (half < 1 || 2 * half > size || !(sin.shape() == cos.shape()) || (cos.dim(0) != 1 && cos.dim(0) != rows[0]) ||
      cos.dim(2) != rows[2]) {
    return Invalid("cannot rotate ", ToString(x.type()), " by ", ToString(cos.type()), " and ", ToString(sin.type()));
  }
  const Val turned = Slice(x, 3, 0, 2 * half);
  Val y;
  if (interleaved) {
    const Val pairs = Reshape(turned, {rows[0], rows[1], rows[2], half, 2});
    const Val first = Reshape(Slice(pairs, 4, 0, 1), {rows[0], rows[1], rows[2], half}),
              second = Reshape(Slice(pairs, 4, 1, 1), {rows[0], rows[1], rows[2], half});
    const Shape one = {rows[0], rows[1], rows[2], half, 1};
    const Val real = first * cos - second * sin, imaginary = first * sin + second * cos;
    y = Reshape(Concat({Reshape(real, one), Reshape(imaginary, one)}, 4), turned.shape());
  } else {
    const Val first = Slice(turned, 3, 0, half), second = Slice(turned, 3, half, half);
    y = turned * Concat({cos, cos}, 3) + Concat({-second, first}, 3) * Concat({sin, sin}, 3);
  }
  return 2 * half == size ? y : Concat({y, Slice(x, 3, 2 * half, size - 2 * half)}, 3);
}

namespace {

// Reshapes [B,S,hidden] to [B,H,S,D]. Returns x unchanged if it has four axes.
absl::StatusOr<Val> ByHeads(Val x, int64_t heads) {
  return x.rank() == 4 ? absl::StatusOr<Val>(x) : SplitHeads(x, heads);
}

// Removes table columns beyond the rotated components.
absl::Status FitTables(const ImportContext& c, Val x, Val* cos, Val* sin) {
  const int64_t dim = c.attrs().Int("rotary_embedding_dim");
  if (x.rank() != 4) return Invalid("expected 3 or 4 axes, got ", ToString(c.in(0).type()));
  const int64_t half = (dim == 0 ? x.dim(3) : dim) / 2;
  for (Val* table : {cos, sin}) {
    if (!*table || half < 1 || table->dim(3) < half)
      return Invalid("rotates ", 2 * half, " components of each head by a table ", ToString(table->type()));
    if (table->dim(3) > half) *table = Slice(*table, 3, 0, half);
  }
  return absl::OkStatus();
}

ImportOr Rotated(ImportContext& c, Val x, Val cos, Val sin) {
  RETURN_IF_ERROR(FitTables(c, x, &cos, &sin));
  ASSIGN_OR_RETURN(const Val y,
                   Rotate(x, Cast(cos, x.dtype()), Cast(sin, x.dtype()), c.attrs().Int("interleaved") != 0));
  return One(c.in(0).rank() == 3 ? MergeHeads(y) : y);
}

// Imports RotaryEmbedding with tables [P,R] and position_ids [B,S], or with tables [B,S,R].
ImportOr ImportRotary(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val x, ByHeads(c.in(0), c.attrs().Int("num_heads")));
  Val rows[2];
  for (size_t i : {1, 2}) {
    if (c.has(3)) {
      ASSIGN_OR_RETURN(rows[i - 1], RotaryRows(c, i, c.in(3)));
      continue;
    }
    const Val table = FixedInput(c, i);
    if (table.rank() != 3)
      return Invalid("without position_ids, input ", i, " should be [B,S,R], got ", ToString(table.type()));
    rows[i - 1] = Reshape(table, {table.dim(0), 1, table.dim(1), table.dim(2)});
  }
  return Rotated(c, x, rows[0], rows[1]);
}

// Imports RotaryEmbedding of com.microsoft. position_ids are [B,S], or [1] with the position of the first token.
// Without num_heads, the table determines the size of a head.
ImportOr ImportMsRotary(ImportContext& c) {
  if (c.attrs().Int("is_packed_batching") != 0) return Unsupported("is_packed_batching");
  int64_t heads = c.attrs().Int("num_heads");
  if (heads == 0 && c.in(0).rank() == 3 && c.in(2).dim(1) > 0) heads = c.in(0).dim(2) / (2 * c.in(2).dim(1));
  ASSIGN_OR_RETURN(const Val x, ByHeads(c.in(0), heads));
  Val positions = Cast(c.in(1), DType::kInt64);
  if (positions.rank() == 1 && positions.dim(0) == 1) {
    ASSIGN_OR_RETURN(const Val index, Positions(c.b(), x.dim(2), 0));
    positions = index + positions;
  }
  ASSIGN_OR_RETURN(const Val cos, RotaryRows(c, 2, positions));
  ASSIGN_OR_RETURN(const Val sin, RotaryRows(c, 3, positions));
  return Rotated(c, x, cos, sin);
}

}  // namespace

std::span<const OnnxOp> RotaryImports() {
  static constexpr OnnxOp ops[] = {
      {"", "RotaryEmbedding", 3, 4, ImportRotary},
      {"com.microsoft", "RotaryEmbedding", 4, 4, ImportMsRotary},
  };
  return ops;
}

namespace {

// Reads query, key and value, or all three from the query, which then has H + 2G heads.
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

// A cache of keys and values. For each sample, the first seqlens_k + 1 − s keys are used; the others are free for later
// steps.
struct Cache {
  int64_t keys = 0;
  Val filled;  // i64 [B,1,1,1]: number of used keys; invalid: all keys
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

// Returns the positions [B,1,1,T] of the cached keys and the new keys, which continue after the used ones.
absl::StatusOr<Val> KeyPositions(Builder& b, const Cache& cache, int64_t keys) {
  ASSIGN_OR_RETURN(const Val index, Positions(b, keys, 0));
  const Val fresh = index - static_cast<double>(cache.keys);
  return Where(Less(fresh, 0), index, fresh + cache.filled);
}

// Returns the mask of keys that a query sees: used ones up to its own position.
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

// Sorts keys or values by position, with free entries at the end.
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

ImportOr ImportGroupQueryAttention(ImportContext& c) {
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
