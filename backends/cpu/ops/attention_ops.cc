#include "backends/cpu/ops/attention_ops.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

using Perm = std::vector<int64_t>;

constexpr std::string_view kPrefix = "cpu.";

// The attribute "perms" holds one permutation for every input but the mask, then one for every output. They transpose
// an input to the operand, and a result to the output.
Perm GetPerm(const Attrs& attrs, size_t index, size_t rank) {
  const Perm all = attrs.Ints("perms");
  return {all.begin() + index * rank, all.begin() + (index + 1) * rank};
}

bool IsPerm(Perm perm) {
  std::sort(perm.begin(), perm.end());
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

Shape Permuted(const Shape& shape, const Perm& perm) {
  Shape result;
  for (int64_t a : perm) result.push_back(shape[a]);
  return result;
}

absl::Status CheckPerms(const TypeContext& c, size_t operands) {
  const size_t rank = c.in(0).rank();
  if (c.attrs.Ints("perms").size() != operands * rank) return Invalid("permutations of the wrong length");
  for (size_t i = 0; i < operands; ++i) {
    if (!IsPerm(GetPerm(c.attrs, i, rank))) return Invalid("no permutation");
  }
  for (size_t i = 0; i < MaskIndex(c.op); ++i) {
    if (c.in(i).rank() != static_cast<int>(rank)) return Invalid("operands of different ranks");
  }
  return absl::OkStatus();
}

// The types of the operands of the operator without transposes.
std::vector<Type> Operands(std::span<const Type* const> inputs, std::string_view op, const Attrs& attrs) {
  std::vector<Type> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type type = *inputs[i];
    if (i != MaskIndex(op)) type.shape = Permuted(type.shape, GetPerm(attrs, i, inputs[0]->rank()));
    types.push_back(std::move(type));
  }
  return types;
}

std::vector<const Type*> Pointers(const std::vector<Type>& types) {
  std::vector<const Type*> pointers;
  for (const Type& type : types) pointers.push_back(&type);
  return pointers;
}

absl::StatusOr<std::vector<Type>> InferHeadTypes(const TypeContext& c) {
  const size_t outputs = c.op.ends_with("Grad") ? 3 : 1;
  RETURN_IF_ERROR(CheckPerms(c, MaskIndex(c.op) + outputs));
  const std::vector<Type> operands = Operands(c.inputs, c.op, c.attrs);
  Attrs attrs = {{"scale", c.attrs.Float("scale")}};
  ASSIGN_OR_RETURN(std::vector<Type> types, InferTypes(c.op.substr(kPrefix.size()), Pointers(operands), attrs));
  for (size_t o = 0; o < types.size(); ++o) {
    types[o].shape = Permuted(types[o].shape, GetPerm(c.attrs, MaskIndex(c.op) + o, c.in(0).rank()));
  }
  return types;
}

// Forward, two products have all scores as result or operand; backward, five.
double ProductFlops(const Type& q, const Type& k, double products) {
  return products * 2.0 * static_cast<double>(q.elements()) * static_cast<double>(k.shape[k.shape.size() - 2]);
}

double Flops(std::span<const Type* const> inputs, std::span<const Type>, const Attrs& attrs) {
  const std::vector<Type> types = Operands(inputs, "cpu.Attention", attrs);
  return ProductFlops(types[0], types[1], 1) +
         ProductFlops(types[0], types[1], 1) * types[2].shape.back() / types[0].shape.back();
}

double GradFlops(std::span<const Type* const> inputs, std::span<const Type>, const Attrs& attrs) {
  const std::vector<Type> types = Operands(inputs, "cpu.AttentionGrad", attrs);
  return ProductFlops(types[1], types[2], 3) + ProductFlops(types[0], types[2], 2);
}

}  // namespace

size_t MaskIndex(std::string_view op) { return op.ends_with("Grad") ? 4 : 3; }

std::vector<OpRow> AttentionRows() {
  const std::vector<AttrSpec> attrs = {{"scale", 1.0}, {"perms", std::vector<int64_t>(), true}};
  return {{.name = "cpu.Attention",
           .inputs = {3, 4},
           .attrs = attrs,
           .infer = InferHeadTypes,
           .precision = Precision::kLow,
           .recompute = Recompute::kExpensive,
           .flops = Flops},
          {.name = "cpu.AttentionGrad",
           .inputs = {4, 5},
           .outputs = 3,
           .attrs = attrs,
           .infer = InferHeadTypes,
           .precision = Precision::kLow,
           .recompute = Recompute::kExpensive,
           .flops = GradFlops}};
}

std::vector<StridedType> GetHeadOperands(const KernelContext& c) {
  const size_t rank = c.in(0).rank(), mask = MaskIndex(c.node.op), inputs = c.node.inputs.size();
  std::vector<StridedType> operands;
  for (size_t i = 0; i < inputs; ++i) {
    if (i == mask) {
      operands.push_back({c.in(i).shape, Strides(c.in(i).shape)});
      continue;
    }
    const Perm perm = GetPerm(c.attrs(), i, rank);
    operands.push_back({Permuted(c.in(i).shape, perm), Permuted(Strides(c.in(i).shape), perm)});
  }
  for (size_t o = 0; o < c.node.outputs.size(); ++o) {
    const Perm perm = GetPerm(c.attrs(), mask + o, rank);
    Perm back(rank);
    for (size_t a = 0; a < rank; ++a) back[perm[a]] = static_cast<int64_t>(a);
    operands.push_back({Permuted(c.out(o).shape, back), Permuted(Strides(c.out(o).shape), back)});
  }
  return operands;
}

}  // namespace onnxtrain::cpu
