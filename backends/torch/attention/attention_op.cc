#include "backends/torch/attention/attention_op.h"

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain::aten {
namespace {

// The output types of the canonical operator over inputs first, first + 1, … and the mask.
absl::StatusOr<std::vector<Type>> InferCanonical(std::string_view op, const TypeContext& c, size_t count, size_t mask) {
  std::vector<const Type*> inputs(c.inputs.begin(), c.inputs.begin() + static_cast<int64_t>(count));
  if (c.has(mask)) inputs.push_back(c.inputs[mask]);
  Attrs attrs = {{"scale", c.attrs.Float("scale")}};
  return InferTypes(op, inputs, attrs);
}

absl::Status CheckCausal(const TypeContext& c, size_t q, size_t mask) {
  if (c.attrs.Int("causal") == 0) return absl::OkStatus();
  if (c.has(mask)) return Invalid("causal beside a mask");
  const Shape &queries = c.in(q).shape, &keys = c.in(q + 1).shape;
  return queries[queries.size() - 2] == keys[keys.size() - 2] ? absl::OkStatus() : Invalid("causal with other keys");
}

Type GetLseType(const TypeContext& c) { return {LseType(c.in(0).dtype), c.attrs.Ints("lse_shape")}; }

absl::StatusOr<std::vector<Type>> InferAttention(const TypeContext& c) {
  ASSIGN_OR_RETURN(std::vector<Type> types, InferCanonical("Attention", c, 3, 3));
  RETURN_IF_ERROR(CheckCausal(c, 0, 3));
  types.push_back(GetLseType(c));
  return types;
}

absl::StatusOr<std::vector<Type>> InferAttentionGrad(const TypeContext& c) {
  ASSIGN_OR_RETURN(std::vector<Type> types, InferCanonical("AttentionGrad", c, 4, 6));
  RETURN_IF_ERROR(CheckCausal(c, 1, 6));
  if (c.in(4) != c.in(0)) return Invalid("y ", ToString(c.in(4)), " beside dy ", ToString(c.in(0)));
  if (c.in(5) != GetLseType(c)) return Invalid("lse ", ToString(c.in(5)));
  return types;
}

double Flops(std::span<const Type* const> in, std::span<const Type> out, const Attrs& attrs) {
  return FindOp("Attention")->flops(in, out.first(1), attrs);
}

double GradFlops(std::span<const Type* const> in, std::span<const Type> out, const Attrs& attrs) {
  return FindOp("AttentionGrad")->flops(in, out, attrs);
}

}  // namespace

DType LseType(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

void RegisterAttentionOps() {
  const std::vector<AttrSpec> attrs = {{"scale", 1.0, true},
                                       {"kernel", std::string(), true},
                                       {"causal", int64_t{0}},
                                       {"may_hide_all", int64_t{0}},
                                       {"lse_shape", Shape(), true}};
  static const auto* rows = new std::vector<OpRow>{{.name = kAttention,
                                                    .inputs = {3, 4},
                                                    .outputs = 2,
                                                    .attrs = attrs,
                                                    .infer = InferAttention,
                                                    .precision = Precision::kLow,
                                                    .recompute = Recompute::kExpensive,
                                                    .flops = Flops},
                                                   {.name = kAttentionGrad,
                                                    .inputs = {6, 7},
                                                    .outputs = 3,
                                                    .attrs = attrs,
                                                    .infer = InferAttentionGrad,
                                                    .precision = Precision::kLow,
                                                    .recompute = Recompute::kExpensive,
                                                    .flops = GradFlops,
                                                    .is_gradient = true}};
  RegisterOps(*rows);
}

}  // namespace onnxtrain::aten
