// Scaled dot-product attention (Vaswani et al., 2017).
#include <limits>

#include "frontend/ops/formula.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

bool SameBatch(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin());
}

// Requires a mask of the type of q, or float32 for 16-bit types, which may not represent numbers that hide a key.
absl::Status CheckMask(const TypeContext& c, size_t mask) {
  const bool wide = c.has(mask) && c.in(mask).dtype == DType::kFloat32 && DTypeSize(c.in(0).dtype) < 4;
  return !c.has(mask) || wide ? absl::OkStatus() : RequireSameDType(c, mask, 0);
}

// Requires the dropout key to be present exactly if the ratio is not 0.
absl::Status CheckProbabilityDropout(const TypeContext& c, size_t key) {
  if (c.has(key)) return CheckDropout(c, key);
  return c.attrs.Float("ratio") == 0 ? absl::OkStatus() : Invalid("a dropout without a key");
}

// Returns the type of y, given q, k, v, mask and key as inputs `first` … `first` + 4.
absl::StatusOr<Type> AttentionType(const TypeContext& c, size_t first) {
  RETURN_IF_ERROR(CheckFloats(c, first + 3));
  RETURN_IF_ERROR(CheckMask(c, first + 3));
  RETURN_IF_ERROR(CheckProbabilityDropout(c, first + 4));
  const Shape &q = c.in(first).shape, &k = c.in(first + 1).shape, &v = c.in(first + 2).shape;
  if (q.size() < 2 || !SameBatch(q, k) || !SameBatch(q, v) || q.back() != k.back() ||
      k[k.size() - 2] != v[v.size() - 2]) {
    return Invalid("expected q […,S,D], k […,T,D], v […,T,E], got ", ToString(q), ", ", ToString(k), ", ", ToString(v));
  }
  Shape scores = q;
  scores.back() = k[k.size() - 2];
  RETURN_IF_ERROR(CheckShape(scores));
  if (c.has(first + 3) && BroadcastShapes(c.in(first + 3).shape, scores) != scores) {
    return Invalid("the mask ", ToString(c.in(first + 3)), " does not broadcast to ", ToString(scores));
  }
  Shape y = q;
  y.back() = v.back();
  return Type{c.in(first).dtype, std::move(y)};
}

absl::StatusOr<std::vector<Type>> InferAttention(const TypeContext& c) {
  ASSIGN_OR_RETURN(Type y, AttentionType(c, 0));
  return std::vector<Type>{std::move(y)};
}

absl::StatusOr<std::vector<Type>> InferAttentionGrad(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Type y, AttentionType(c, 1));
  RETURN_IF_ERROR(CheckInputShape(c, 0, y.shape));
  return std::vector<Type>{c.in(1), c.in(2), c.in(3)};
}

// Returns true for queries from which the mask hides every key. The softmax of such a row of −∞ would be NaN.
Val HidesAllKeys(Val mask) {
  const Val largest = mask.rank() == 0 ? mask : ReduceMax(mask, {-1});
  return Equal(largest, -std::numeric_limits<double>::infinity());
}

// The inputs and attributes that Attention and AttentionGrad share.
struct Operands {
  Val q, k, v, mask, key;
  Attrs attrs;

  double Float(std::string_view name) const { return attrs.Float(name); }
};

// Returns the type of scores and exponentials: float32 for 16-bit types, as in fused kernels.
DType ScoreType(DType dtype) { return DTypeSize(dtype) < 4 ? DType::kFloat32 : dtype; }

// Scores s = scale·q·kᵀ or, with a cap, softcap·tanh(s/softcap). `tanh` is invalid without a cap.
struct Scores {
  Val scores, tanh;
};

Scores BuildScores(const Operands& x) {
  const Val product = MatMul(x.q, x.k, false, true);
  if (!product) return {};
  const Val scores = Cast(product, ScoreType(product.dtype())) * x.Float("scale");
  const double cap = x.Float("softcap");
  if (cap == 0) return {scores, Val()};
  const Val tanh = Tanh(scores / cap);
  return {tanh * cap, tanh};
}

// Returns softmax(scores + mask) in the type of q.
Val Probabilities(Val scores, const Operands& x) {
  if (!scores) return Val();
  const DType type = x.q.dtype(), wide = scores.dtype();
  const auto softmax = [&](Val s) { return Cast(s.b().Op("Softmax", {s}, {{"axis", int64_t{s.rank() - 1}}}), type); };
  if (!x.mask) return softmax(scores);
  const Val hidden = HidesAllKeys(x.mask), zero = Number(x.mask, 0);
  const Val p = softmax(scores + Cast(Where(hidden, zero, x.mask), wide));
  return Where(hidden, Number(p, 0), p);
}

// Applies dropout. Drops the same elements of probabilities and of their gradient.
Val DropProbabilities(Val p, const Operands& x) {
  if (!p || x.Float("ratio") == 0) return p;
  return p.b().Op("Dropout", {p, x.key}, {{"ratio", x.Float("ratio")}, {"stream", x.attrs.Int("stream")}});
}

std::vector<Val> DecomposeAttention(const DecomposeContext& c) {
  const Operands x{c.x(0), c.x(1), c.x(2), c.x(3), c.x(4), c.attrs};
  return {MatMul(DropProbabilities(Probabilities(BuildScores(x).scores, x), x), x.v)};
}

// With dropout D, t = tanh(scale·q·kᵀ/softcap), p = softmax(softcap·t + mask) and dp = D(dy·vᵀ): dv = D(p)ᵀ·dy,
// ds = p∘(dp − Σ p∘dp)∘(1 − t²), dq = scale·ds·k, dk = scale·dsᵀ·q. dmask = p∘(dp − Σ p∘dp), summed over the axes along
// which the mask was broadcast.
struct AttentionGrads {
  Val dq, dk, dv, masked;
};

AttentionGrads BuildAttentionGrads(Val dy, const Operands& x) {
  const Scores s = BuildScores(x);
  const Val p = Probabilities(s.scores, x), dp = DropProbabilities(MatMul(dy, x.v, false, true), x);
  if (!p || !dp) return {};
  const double scale = x.Float("scale");
  const DType wide = ScoreType(p.dtype());
  const Val masked = p.b().Op("SoftmaxGrad", {Cast(dp, wide), Cast(p, wide)}, {{"axis", int64_t{p.rank() - 1}}});
  const Val ds = Cast(s.tanh ? masked * (1.0 - s.tanh * s.tanh) : masked, p.dtype());
  return {MatMul(ds, x.k) * scale, MatMul(ds, x.q, true, false) * scale,
          MatMul(DropProbabilities(p, x), dy, true, false), Cast(masked, p.dtype())};
}

std::vector<Val> DecomposeAttentionGrad(const DecomposeContext& c) {
  const AttentionGrads g = BuildAttentionGrads(c.x(0), {c.x(1), c.x(2), c.x(3), c.x(4), c.x(5), c.attrs});
  return {g.dq, g.dk, g.dv};
}

// Uses the decomposition if the mask needs a gradient, which requires all scores and makes a fused kernel pointless.
std::vector<Val> GradAttention(const GradContext& c) {
  const Operands x{c.x(0), c.x(1), c.x(2), c.x(3), c.x(4), c.node.attrs};
  std::vector<Val> grads;
  if (c.need(3)) {
    const AttentionGrads g = BuildAttentionGrads(c.dy(), x);
    grads = {g.dq, g.dk, g.dv, Cast(SumTo(g.masked, x.mask.shape()), x.mask.dtype())};
  } else {
    grads = c.b.Ops("AttentionGrad", {c.dy(), x.q, x.k, x.v, x.mask, x.key}, x.attrs);
  }
  grads.resize(c.inputs.size());
  return grads;
}

// Returns the FLOPs of one product over all pairs of queries and keys, such as q·kᵀ or p·v.
double ProductFlops(const Type& k, const Type& rows) {
  return 2.0 * static_cast<double>(k.shape[k.shape.size() - 2]) * static_cast<double>(rows.elements());
}

double Flops(std::span<const Type* const> in, std::span<const Type> out, const Attrs&) {
  return ProductFlops(*in[1], *in[0]) + ProductFlops(*in[1], out[0]);
}

double GradFlops(std::span<const Type* const> in, std::span<const Type>, const Attrs&) {
  return 3 * ProductFlops(*in[2], *in[1]) + 2 * ProductFlops(*in[2], *in[0]);
}

}  // namespace

std::span<const OpRow> AttentionOps() {
  const std::vector<AttrSpec> attrs = {{"scale", 1.0}, {"softcap", 0.0}, {"ratio", 0.0}, {"stream", int64_t{0}}};
  static const std::vector<OpRow> rows = {
      {.name = "Attention",
       .inputs = {3, 5},
       .attrs = attrs,
       .infer = InferAttention,
       .grad_status = GradStatus::kFormula,
       .gradient = GradAttention,
       .decompose = DecomposeAttention,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = Flops,
       .init = {.roles = {4, WeightRole::kTable}},
       .simplify = SimplifyAttention},
      {.name = "AttentionGrad",
       .inputs = {4, 6},
       .outputs = 3,
       .attrs = attrs,
       .infer = InferAttentionGrad,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeAttentionGrad,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = GradFlops,
       .is_gradient = true},
  };
  return rows;
}

}  // namespace onnxtrain
