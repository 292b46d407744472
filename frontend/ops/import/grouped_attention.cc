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

// A cache may be longer than what it holds: seqlens_k says how much counts, which must be all of it.
absl::Status CheckCache(ImportContext& c, int64_t past, int64_t s) {
  if (past == 0) return absl::OkStatus();
  const HostTensor* lengths = c.Known(5);
  const std::vector<int64_t> last = lengths == nullptr ? std::vector<int64_t>() : lengths->ToInts();
  const bool full =
      !last.empty() && std::all_of(last.begin(), last.end(), [&](int64_t k) { return k == past + s - 1; });
  return full ? absl::OkStatus()
              : Unsupported(StrCat("a cache of ", past, " keys that seqlens_k does not fill; one of length 0"));
}

absl::Status RotateQueriesAndKeys(ImportContext& c, Heads* h, int64_t past) {
  if (c.attrs().Int("do_rotary") == 0) return absl::OkStatus();
  if (!c.has(7) || !c.has(8)) return Invalid("do_rotary needs cos_cache and sin_cache");
  Val positions = c.in(9);
  if (!positions) {
    ASSIGN_OR_RETURN(positions, Positions(c.b(), h->q.dim(2), past));
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
  const int64_t past = c.has(3) ? c.in(3).dim(2) : 0, s = h.q.dim(2);
  RETURN_IF_ERROR(CheckCache(c, past, s));
  RETURN_IF_ERROR(RotateQueriesAndKeys(c, &h, past));
  RETURN_IF_ERROR(PrependCache(&h, c.in(3), c.in(4)));
  if (c.node().used.size() > 3 && c.node().used[3]) return Unsupported("the output output_qk");
  ASSIGN_OR_RETURN(h.allowed, CausalMask(c.b(), s, h.k.dim(2), h.past, c.attrs().Int("local_window_size", -1)));
  h.bias = c.in(10);
  h.scale = c.attrs().Float("scale", 0);
  h.softcap = c.attrs().Float("softcap", 0);
  h.sink = c.in(11);
  if (!h.sink && c.attrs().Int("smooth_softmax") > 0) h.sink = Expand(c.b().Scalar(h.q.dtype(), 0), {h.q.dim(1)});
  ASSIGN_OR_RETURN(const AttentionResult a, BuildAttention(c.b(), h));
  return std::vector<Val>{MergeHeads(a.y), h.k, h.v};
}

}  // namespace

std::span<const OnnxOp> GroupedAttentionImports() {
  static constexpr OnnxOp ops[] = {{"com.microsoft", "GroupQueryAttention", 1, 12, ImportGroupQueryAttention}};
  return ops;
}

}  // namespace onnxtrain
