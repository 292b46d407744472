// cpu.Attention and cpu.AttentionGrad: attention over heads in the layout of the projections. Strides replace the
// transposes around the canonical operators. The attribute "perms" holds one permutation for every input before the
// mask, then one for every output: they transpose an input to the operand, and a result to the output.
#include "backends/cpu/ops/ops.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

using Perm = std::vector<int64_t>;

Perm GetPerm(const Attrs& attrs, size_t index, size_t rank) {
  const Perm all = attrs.Ints("perms");
  return {all.begin() + index * rank, all.begin() + (index + 1) * rank};
}

Shape Permuted(const Shape& shape, const Perm& perm) {
  Shape result;
  for (int64_t a : perm) result.push_back(shape[a]);
  return result;
}

// Transposes the first `count` types by the permutations from `first` on.
TypesOr Transposed(Types types, size_t count, size_t first, const Attrs& attrs) {
  const size_t rank = types[0].rank();
  for (size_t i = 0; i < count; ++i) {
    const Type* x = &types[i];
    Attrs transpose = {{"perm", GetPerm(attrs, first + i, rank)}};
    ASSIGN_OR_RETURN(const Types y, InferTypes("Transpose", {&x, 1}, transpose));
    types[i] = y[0];
  }
  return types;
}

// The inputs of the operator without "cpu.". `inputs` are those of its form here.
class Operands {
 public:
  static absl::StatusOr<Operands> Make(std::span<const Type* const> inputs, size_t mask, const Attrs& attrs) {
    Operands operands;
    for (const Type* type : inputs) operands.types_.push_back(type == nullptr ? Type{} : *type);
    ASSIGN_OR_RETURN(operands.types_, Transposed(std::move(operands.types_), mask, 0, attrs));
    for (const Type* type : inputs) operands.present_.push_back(type != nullptr);
    return operands;
  }

  // Null where an input is absent.
  std::vector<const Type*> pointers() const {
    std::vector<const Type*> pointers;
    for (size_t i = 0; i < types_.size(); ++i) pointers.push_back(present_[i] ? &types_[i] : nullptr);
    return pointers;
  }

 private:
  Types types_;
  std::vector<bool> present_;
};

TypesOr InferHeadTypes(const TypeContext& c) {
  const size_t mask = MaskIndex(c.op), outputs = FindOp(BaseName(c.op))->outputs;
  if (c.attrs.Ints("perms").size() != (mask + outputs) * c.in(0).rank())
    return Invalid("permutations of the wrong length");
  ASSIGN_OR_RETURN(const Operands operands, Operands::Make(c.inputs, mask, c.attrs));
  Attrs attrs = c.attrs;
  attrs.Erase("perms");
  ASSIGN_OR_RETURN(Types types, InferTypes(BaseName(c.op), operands.pointers(), attrs));
  return Transposed(std::move(types), outputs, mask, c.attrs);
}

template <const char* kOp>
double Flops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const Operands operands = *Operands::Make(inputs, MaskIndex(kOp), attrs);
  return FindOp(kOp)->flops(operands.pointers(), outputs, attrs);
}

constexpr char kForward[] = "Attention", kBackward[] = "AttentionGrad";

}  // namespace

size_t MaskIndex(std::string_view op) { return op.ends_with(kBackward) ? 4 : 3; }

std::vector<OpRow> AttentionRows() {
  const AttrSpec perms = {"perms", std::vector<int64_t>(), true};
  OpRow forward = FormOf("cpu.Attention", InferHeadTypes, 0, {perms}),
        backward = FormOf("cpu.AttentionGrad", InferHeadTypes, 0, {perms});
  forward.flops = Flops<kForward>;
  backward.flops = Flops<kBackward>;
  return {forward, backward};
}

std::vector<StridedType> GetHeadOperands(const KernelContext& c) {
  const size_t rank = c.in(0).rank(), mask = MaskIndex(c.node.op);
  std::vector<StridedType> operands;
  const auto add = [&](const Shape& shape, const Perm& perm) {
    operands.push_back({Permuted(shape, perm), Permuted(Strides(shape), perm)});
  };
  for (size_t i = 0; i < mask; ++i) add(c.in(i).shape, GetPerm(c.attrs(), i, rank));
  const Shape mask_shape = c.has(mask) ? c.in(mask).shape : Shape();
  operands.push_back({mask_shape, Strides(mask_shape)});
  for (size_t o = 0; o < c.node.outputs.size(); ++o) {
    const Perm perm = GetPerm(c.attrs(), mask + o, rank);
    Perm back(rank);
    for (size_t a = 0; a < rank; ++a) back[perm[a]] = static_cast<int64_t>(a);
    add(c.out(o).shape, back);
  }
  return operands;
}

}  // namespace onnxtrain::cpu
