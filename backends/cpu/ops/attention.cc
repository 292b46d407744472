// cpu.Attention and cpu.AttentionGrad read and write heads in the layout of the projections: strides replace the
// transposes around the canonical operators. The attribute "perms" has one permutation for every input before the mask,
// then one for every output in which heads are; they transpose an input to the operand, and a result to the output.
// Keys and values may have fewer heads than queries: each serves as many successive heads of these, and its gradient is
// the sum of theirs. After the key of a dropout come the visible keys of the mask, if its last axes are queries and
// keys. The second output of the forward pass, softmax [batch…, 2, queries] in float32, has what the softmax of a query
// subtracts from its scores, and 1 over the sum of their exponentials. The backward pass reads the first output after
// dy, and softmax last.
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

constexpr char kForward[] = "Attention", kBackward[] = "AttentionGrad";

bool IsBackward(std::string_view op) { return op.ends_with(kBackward); }

// Returns the index of the mask among the inputs. Those before it have permutations.
size_t MaskIndex(std::string_view op) { return IsBackward(op) ? 5 : 3; }

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

// The extent of the heads of an operand [batch…, heads, rows, columns].
int64_t& CountHeads(Shape& shape) { return shape[shape.size() - 3]; }

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

// Holds the operands of the operator without "cpu.": the transposed `inputs`.
class Operands {
 public:
  static absl::StatusOr<Operands> Make(std::span<const Type* const> inputs, size_t mask, const Attrs& attrs) {
    Operands operands;
    inputs = inputs.first(std::min(inputs.size(), mask + 2));  // without visible keys and softmax
    for (const Type* type : inputs) operands.types_.push_back(type == nullptr ? Type{} : *type);
    ASSIGN_OR_RETURN(operands.types_, Transposed(std::move(operands.types_), mask, 0, attrs));
    for (const Type* type : inputs) operands.present_.push_back(type != nullptr);
    RETURN_IF_ERROR(operands.RepeatHeads(mask));
    operands.has_y_ = mask == MaskIndex(kBackward);
    return operands;
  }

  const Shape& shape(size_t operand) const { return types_[operand].shape; }
  int64_t rows(size_t operand) const { return shape(operand)[types_[operand].rank() - 2]; }
  // Returns the heads of keys and values if they are repeated, else 0.
  int64_t groups() const { return groups_; }

  // Returns the inputs of the operator without "cpu.", null for absent ones.
  std::vector<const Type*> canonical() const {
    std::vector<const Type*> pointers;
    for (size_t i = 0; i < types_.size(); ++i) {
      if (!has_y_ || i != 1) pointers.push_back(present_[i] ? &types_[i] : nullptr);
    }
    return pointers;
  }

 private:
  // Gives keys and values, the operands before the mask, the heads of the queries before them.
  absl::Status RepeatHeads(size_t mask) {
    if (types_[0].rank() < 4) return absl::OkStatus();
    const int64_t heads = CountHeads(types_[mask - 3].shape), groups = CountHeads(types_[mask - 2].shape);
    if (groups == heads) return absl::OkStatus();
    if (groups == 0 || heads % groups != 0 || CountHeads(types_[mask - 1].shape) != groups)
      return Invalid("expected heads of keys and values that divide ", heads, ", got ", groups);
    for (const size_t i : {mask - 2, mask - 1}) CountHeads(types_[i].shape) = heads;
    groups_ = groups;
    return absl::OkStatus();
  }

  Types types_;
  std::vector<bool> present_;
  bool has_y_ = false;
  int64_t groups_ = 0;
};

// The ranges of keys (kernels/visible_keys.h) of a mask […,queries,keys], by row.
TypesOr VisibleKeysTypes(const TypeContext& c) {
  const Type& mask = c.in(0);
  if (mask.dtype != DType::kFloat32 || mask.rank() < 2 || mask.elements() == 0)
    return Invalid("no mask: ", ToString(mask));
  return Types{{DType::kInt64, {mask.elements() / mask.shape.back(), 3}}};
}

// Requires the visible keys of a mask with a row of keys for each query.
absl::Status CheckVisibleKeys(const TypeContext& c, size_t mask, int64_t queries, int64_t keys) {
  const size_t visible = mask + 2;
  if (!c.has(visible)) return absl::OkStatus();
  const Shape shape = c.has(mask) ? c.in(mask).shape : Shape();
  const bool rows =
      shape.size() >= 2 && shape[shape.size() - 2] == queries && shape.back() == keys && NumElements(shape) != 0;
  if (!rows || c.in(visible) != Type{DType::kInt64, {NumElements(shape) / keys, 3}})
    return Invalid("visible keys ", ToString(c.in(visible)), " of another mask");
  return absl::OkStatus();
}

// Returns the type of the softmax of queries [batch…, queries, columns].
Type SoftmaxType(Shape q) {
  q.back() = q[q.size() - 2];
  q[q.size() - 2] = 2;
  return {DType::kFloat32, std::move(q)};
}

TypesOr InferHeadTypes(const TypeContext& c) {
  const size_t mask = MaskIndex(c.op), outputs = FindOp(BaseName(c.op))->outputs;
  if (c.attrs.Ints("perms").size() != (mask + outputs) * c.in(0).rank())
    return Invalid("permutations of the wrong length");
  ASSIGN_OR_RETURN(const Operands operands, Operands::Make(c.inputs, mask, c.attrs));
  Attrs attrs = c.attrs;
  attrs.Erase("perms");
  ASSIGN_OR_RETURN(Types types, InferTypes(BaseName(c.op), operands.canonical(), attrs));
  RETURN_IF_ERROR(CheckVisibleKeys(c, mask, operands.rows(mask - 3), operands.rows(mask - 2)));
  const Type softmax = SoftmaxType(operands.shape(mask - 3));
  if (IsBackward(c.op)) {
    if (operands.shape(1) != operands.shape(0) || c.in(1).dtype != c.in(0).dtype)
      return Invalid("the result ", ToString(c.in(1)), " of the gradient ", ToString(c.in(0)));
    if (!c.has(kSoftmaxInput) || c.in(kSoftmaxInput) != softmax)
      return Invalid("expected the softmax ", ToString(softmax));
  }
  for (size_t o = 1; o < outputs && operands.groups() > 0; ++o) CountHeads(types[o].shape) = operands.groups();
  ASSIGN_OR_RETURN(types, Transposed(std::move(types), outputs, mask, c.attrs));
  if (!IsBackward(c.op)) types.push_back(softmax);
  return types;
}

template <const char* kOp>
double Flops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const Operands operands = *Operands::Make(inputs, MaskIndex(kOp), attrs);
  return FindOp(kOp)->flops(operands.canonical(), outputs, attrs);
}

}  // namespace

std::vector<OpRow> AttentionRows() {
  const AttrSpec perms = {"perms", std::vector<int64_t>(), true};
  OpRow forward = FormOf("cpu.Attention", InferHeadTypes, 1, {perms}),
        backward = FormOf("cpu.AttentionGrad", InferHeadTypes, 3, {perms});
  const OpRow visible_keys = {.name = "cpu.VisibleKeys", .infer = VisibleKeysTypes};
  forward.outputs = 2;
  forward.flops = Flops<kForward>;
  backward.inputs.min = 5;
  backward.flops = Flops<kBackward>;
  return {forward, backward, visible_keys};
}

namespace {

// Splits the axis of heads in two, [groups, heads / groups]. Heads that are repeated have the stride 0 along the
// second.
StridedType SplitHeads(StridedType t, int64_t groups, int64_t repeats) {
  const auto axis = static_cast<std::ptrdiff_t>(t.shape.size()) - 3;
  const int64_t heads = t.shape[axis], stride = t.strides[axis];
  const bool repeated = heads != groups * repeats;
  t.shape[axis] = groups;
  t.strides[axis] = repeated ? stride : repeats * stride;
  t.shape.insert(t.shape.begin() + axis + 1, repeats);
  t.strides.insert(t.strides.begin() + axis + 1, repeated ? 0 : stride);
  return t;
}

StridedType SplitMask(Shape shape, int64_t groups, int64_t repeats) {
  if (shape.size() >= 3) {
    const bool by_head = CountHeads(shape) != 1;
    CountHeads(shape) = by_head ? groups : 1;
    shape.insert(shape.end() - 2, by_head ? repeats : 1);
  }
  return {shape, Strides(shape)};
}

}  // namespace

std::vector<StridedType> GetHeadOperands(const KernelContext& c) {
  const size_t rank = c.in(0).rank(), mask = MaskIndex(c.node.op);
  std::vector<StridedType> operands;
  const auto add = [&](const Shape& shape, const Perm& perm) {
    operands.push_back({Permuted(shape, perm), Permuted(Strides(shape), perm)});
  };
  for (size_t i = 0; i < mask; ++i) add(c.in(i).shape, GetPerm(c.attrs(), i, rank));
  const Shape mask_shape = c.has(mask) ? c.in(mask).shape : Shape();
  operands.push_back({mask_shape, Strides(mask_shape)});
  for (int o = 0; o < FindOp(BaseName(c.node.op))->outputs; ++o) {
    const Perm perm = GetPerm(c.attrs(), mask + o, rank);
    Perm back(rank);
    for (size_t a = 0; a < rank; ++a) back[perm[a]] = static_cast<int64_t>(a);
    add(c.out(o).shape, back);
  }
  if (rank < 4) return operands;
  const int64_t heads = CountHeads(operands[mask - 3].shape), groups = CountHeads(operands[mask - 2].shape);
  if (heads == groups || groups == 0) return operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    StridedType& t = operands[i];
    t = i == mask ? SplitMask(t.shape, groups, heads / groups) : SplitHeads(t, groups, heads / groups);
  }
  return operands;
}

}  // namespace onnxtrain::cpu
