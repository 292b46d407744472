#include "backends/torch/attention/attention_op.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain::aten {
namespace {

using Perms = std::vector<std::vector<int64_t>>;
using Types = std::vector<Type>;

Shape Permuted(const Shape& shape, const std::vector<int64_t>& perm) {
  Shape result;
  for (int64_t axis : perm) result.push_back(shape[axis]);
  return result;
}

bool IsPerm(std::vector<int64_t> perm, size_t rank) {
  std::ranges::sort(perm);
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return perm.size() == rank;
}

// Returns the first `count` input types, permuted to the operands of the canonical operator. `outputs` further
// permutations must follow in `perms`.
absl::StatusOr<Types> GetOperands(const TypeContext& c, size_t count, size_t outputs) {
  const auto rank = static_cast<size_t>(c.in(0).rank());
  const Perms perms = SplitPerms(c.attrs, rank);
  if (perms.size() != count + outputs) return Invalid("expected ", count + outputs, " permutations");
  Types types;
  for (size_t i = 0; i < perms.size(); ++i) {
    if (!IsPerm(perms[i], rank) || (i < count && static_cast<size_t>(c.in(i).rank()) != rank))
      return Invalid("a permutation of other axes");
    if (i < count) types.push_back({c.in(i).dtype, Permuted(c.in(i).shape, perms[i])});
  }
  return types;
}

// Infers the output types of the canonical operator over these operands and the mask, and permutes them to the outputs
// of the fused operator.
absl::StatusOr<Types> InferCanonical(std::string_view op, const TypeContext& c, const Types& operands, size_t first_out,
                                     size_t mask) {
  std::vector<const Type*> inputs;
  for (const Type& type : operands) inputs.push_back(&type);
  if (c.has(mask)) inputs.push_back(c.inputs[mask]);
  Attrs attrs = {{"scale", c.attrs.Float("scale")}};
  ASSIGN_OR_RETURN(Types types, InferTypes(op, inputs, attrs));
  const Perms perms = SplitPerms(c.attrs, operands[0].rank());
  for (size_t o = 0; o < types.size(); ++o) types[o].shape = Permuted(types[o].shape, perms[first_out + o]);
  return types;
}

absl::Status CheckCausal(const TypeContext& c, const Type& q, const Type& k, size_t mask) {
  if (c.attrs.Int("causal") == 0) return absl::OkStatus();
  if (c.has(mask)) return Invalid("causal beside a mask");
  return q.shape[q.shape.size() - 2] == k.shape[k.shape.size() - 2] ? absl::OkStatus()
                                                                    : Invalid("causal with other keys");
}

Type GetLseType(const TypeContext& c) { return {LseType(c.in(0).dtype), c.attrs.Ints("lse_shape")}; }

absl::StatusOr<Types> InferAttention(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Types operands, GetOperands(c, 3, 1));
  ASSIGN_OR_RETURN(Types types, InferCanonical("Attention", c, operands, 3, 3));
  RETURN_IF_ERROR(CheckCausal(c, operands[0], operands[1], 3));
  types.push_back(GetLseType(c));
  return types;
}

absl::StatusOr<Types> InferAttentionGrad(const TypeContext& c) {
  ASSIGN_OR_RETURN(Types operands, GetOperands(c, 5, 3));
  if (operands[4] != operands[0]) return Invalid("y ", ToString(operands[4]), " beside dy ", ToString(operands[0]));
  if (c.in(5) != GetLseType(c)) return Invalid("lse ", ToString(c.in(5)));
  operands.pop_back();
  RETURN_IF_ERROR(CheckCausal(c, operands[1], operands[2], 6));
  return InferCanonical("AttentionGrad", c, operands, 5, 6);
}

// Counts the operations of the canonical operator. Types and permutations must be valid.
double CountFlops(std::string_view op, std::span<const Type* const> in, size_t count, const Attrs& attrs) {
  const Perms perms = SplitPerms(attrs, in[0]->rank());
  Types types;
  for (size_t i = 0; i < count; ++i) types.push_back({in[i]->dtype, Permuted(in[i]->shape, perms[i])});
  std::vector<const Type*> operands;
  for (const Type& type : types) operands.push_back(&type);
  Attrs canonical = {{"scale", attrs.Float("scale")}};
  const auto out = InferTypes(op, operands, canonical);
  return out.ok() ? FindOp(op)->flops(operands, *out, canonical) : 0;
}

double Flops(std::span<const Type* const> in, std::span<const Type>, const Attrs& attrs) {
  return CountFlops("Attention", in, 3, attrs);
}

double GradFlops(std::span<const Type* const> in, std::span<const Type>, const Attrs& attrs) {
  return CountFlops("AttentionGrad", in, 4, attrs);
}

}  // namespace

DType LseType(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

std::vector<std::vector<int64_t>> SplitPerms(const Attrs& attrs, size_t rank) {
  const std::vector<int64_t> all = attrs.Ints("perms");
  Perms perms;
  for (size_t begin = 0; rank > 0 && begin + rank <= all.size(); begin += rank) {
    const auto at = all.begin() + static_cast<int64_t>(begin);
    perms.emplace_back(at, at + static_cast<int64_t>(rank));
  }
  return perms;
}

void RegisterAttentionOps() {
  const std::vector<AttrSpec> attrs = {{"scale", 1.0, true},         {"kernel", std::string(), true},
                                       {"causal", int64_t{0}},       {"may_hide_all", int64_t{0}},
                                       {"lse_shape", Shape(), true}, {"perms", Shape(), true}};
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
