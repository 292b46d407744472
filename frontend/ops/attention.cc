// Scaled dot-product attention (Vaswani et al., 2017).
#include <limits>

#include "frontend/ops/formula.h"
#include "frontend/ops/nn_rules.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

bool SameBatch(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin());
}

// The mask is float32 where the others are halves: what hides a key may be beyond them.
absl::Status CheckMask(const TypeContext& c, size_t mask) {
  const bool wide = c.has(mask) && c.in(mask).dtype == DType::kFloat32 && DTypeSize(c.in(0).dtype) < 4;
  return !c.has(mask) || wide ? absl::OkStatus() : RequireSameDType(c, mask, 0);
}

// Of q, k, v and the mask, which are the inputs from `first` on: the type of y.
absl::StatusOr<Type> AttentionType(const TypeContext& c, size_t first) {
  RETURN_IF_ERROR(CheckFloats(c, first + 3));
  RETURN_IF_ERROR(CheckMask(c, first + 3));
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

// Returns whether the mask hides every key from a query: a row of −∞, of which softmax is NaN.
Val HidesAllKeys(Val mask) {
  const Val largest = mask.rank() == 0 ? mask : ReduceMax(mask, {-1});
  return Equal(largest, -std::numeric_limits<double>::infinity());
}

// In half precision, scores and exponentials are computed in float32, as fused kernels do.
Val Probabilities(Val q, Val k, Val mask, double scale) {
  const Val product = MatMul(q, k, false, true);
  if (!product) return Val();
  const DType type = product.dtype(), wide = DTypeSize(type) < 4 ? DType::kFloat32 : type;
  const Val scores = Cast(product, wide) * scale;
  const auto softmax = [&](Val x) { return Cast(x.b().Op("Softmax", {x}, {{"axis", int64_t{x.rank() - 1}}}), type); };
  if (!mask) return softmax(scores);
  const Val hidden = HidesAllKeys(mask), zero = Number(mask, 0);
  const Val p = softmax(scores + Cast(Where(hidden, zero, mask), wide));
  return Where(hidden, Number(p, 0), p);
}

std::vector<Val> DecomposeAttention(const DecomposeContext& c) {
  return {MatMul(Probabilities(c.x(0), c.x(1), c.x(3), c.attrs.Float("scale")), c.x(2))};
}

// With p = softmax(s), s = scale·q·kᵀ + mask: dv = pᵀ·dy, ds = p∘(dy·vᵀ − Σ p∘(dy·vᵀ)), dq = scale·ds·k, dk =
// scale·dsᵀ·q, and dmask is the sum of ds over what was broadcast.
struct AttentionGrads {
  Val dq, dk, dv, scores;
};

AttentionGrads BuildAttentionGrads(Val dy, Val q, Val k, Val v, Val mask, double scale) {
  const Val p = Probabilities(q, k, mask, scale), dp = MatMul(dy, v, false, true);
  if (!p || !dp) return {};
  const DType wide = DTypeSize(p.dtype()) < 4 ? DType::kFloat32 : p.dtype();
  const Val ds =
      Cast(p.b().Op("SoftmaxGrad", {Cast(dp, wide), Cast(p, wide)}, {{"axis", int64_t{p.rank() - 1}}}), p.dtype());
  return {MatMul(ds, k) * scale, MatMul(ds, q, true, false) * scale, MatMul(p, dy, true, false), ds};
}

std::vector<Val> DecomposeAttentionGrad(const DecomposeContext& c) {
  const AttentionGrads g = BuildAttentionGrads(c.x(0), c.x(1), c.x(2), c.x(3), c.x(4), c.attrs.Float("scale"));
  return {g.dq, g.dk, g.dv};
}

// A mask that is learned needs the gradient of every score: then nothing is gained by the fused form.
std::vector<Val> GradAttention(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  if (!c.need(3)) {
    std::vector<Val> grads = c.b.Ops("AttentionGrad", {c.dy(), c.x(0), c.x(1), c.x(2), c.x(3)}, attrs);
    grads.resize(c.inputs.size());
    return grads;
  }
  const Val mask = c.x(3);
  const AttentionGrads g = BuildAttentionGrads(c.dy(), c.x(0), c.x(1), c.x(2), mask, attrs.Float("scale"));
  return {g.dq, g.dk, g.dv, Cast(SumTo(g.scores, mask.shape()), mask.dtype())};
}

// Of a product with all scores: q·kᵀ (as q is), p·v (as y is) and their like.
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
  static const std::vector<OpRow> rows = {
      {.name = "Attention",
       .inputs = {3, 4},
       .attrs = {{"scale", 1.0}},
       .infer = InferAttention,
       .grad_status = GradStatus::kFormula,
       .gradient = GradAttention,
       .decompose = DecomposeAttention,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = Flops,
       .init = {.roles = {4, WeightRole::kTable}}},
      {.name = "AttentionGrad",
       .inputs = {4, 5},
       .outputs = 3,
       .attrs = {{"scale", 1.0}},
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
