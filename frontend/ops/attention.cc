// Scaled dot-product attention (Vaswani et al., 2017).
#include "frontend/ops/nn_rules.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

bool SameBatch(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin());
}

absl::StatusOr<std::vector<Type>> InferAttention(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 4));
  const Shape &q = c.in(0).shape, &k = c.in(1).shape, &v = c.in(2).shape;
  if (q.size() < 2 || !SameBatch(q, k) || !SameBatch(q, v) || q.back() != k.back() || k[k.size() - 2] != v[v.size() - 2]) {
    return Invalid("expected q […,S,D], k […,T,D], v […,T,E], got ", ToString(q), ", ", ToString(k), ", ", ToString(v));
  }
  Shape scores = q;
  scores.back() = k[k.size() - 2];
  RETURN_IF_ERROR(CheckShape(scores));
  if (c.has(3) && BroadcastShapes(c.in(3).shape, scores) != scores) {
    return Invalid("the mask ", ToString(c.in(3)), " does not broadcast to ", ToString(scores));
  }
  Shape y = q;
  y.back() = v.back();
  return std::vector<Type>{{c.in(0).dtype, std::move(y)}};
}

// In half precision, the exponentials are computed in float32, as fused kernels do.
Val SoftmaxOver(Val scores, int64_t axis) {
  const DType type = scores.dtype();
  const bool half = SizeOf(type) < 4;
  const Val wide = half ? Cast(scores, DType::kFloat32) : scores;
  return wide ? Cast(wide.b().Op("Softmax", {wide}, {{"axis", axis}}), type) : Val();
}

std::vector<Val> DecomposeAttention(const DecomposeContext& c) {
  Val scores = MatMul(c.x(0), c.x(1), false, true) * c.attrs.Float("scale");
  if (c.x(3)) scores = scores + c.x(3);
  return {MatMul(SoftmaxOver(scores, scores.rank() - 1), c.x(2))};
}

double Flops(std::span<const Type* const> in, std::span<const Type> out, const Attrs&) {
  const Shape& k = in[1]->shape;
  return 2.0 * static_cast<double>(k[k.size() - 2]) * static_cast<double>(in[0]->elements() + out[0].elements());
}

}  // namespace

std::span<const OpRow> AttentionOps() {
  static const std::vector<OpRow> rows = {
      {.name = "Attention", .inputs = {3, 4}, .attrs = {{"scale", 1.0}}, .infer = InferAttention,
       .grad_status = GradStatus::kDecomposition, .decompose = DecomposeAttention, .precision = Precision::kLow,
       .recompute = Recompute::kExpensive, .flops = Flops},
  };
  return rows;
}

}  // namespace onnxtrain
