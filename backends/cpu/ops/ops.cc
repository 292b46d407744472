#include "backends/cpu/ops/ops.h"

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

const AttrSpec kActivation = {"activation", std::string()};

// Infers the types of the operator without "cpu." from the first `count` inputs.
TypesOr InferBase(const TypeContext& c, size_t count, std::string_view base = "") {
  if (base.empty()) base = BaseName(c.op);
  Attrs attrs;
  for (const AttrSpec& spec : FindOp(base)->attrs) {
    for (const auto& [name, value] : c.attrs) {
      if (name == spec.name) attrs.Set(name, value);
    }
  }
  return InferTypes(base, c.inputs.first(std::min(count, c.inputs.size())), attrs);
}

// Checks the type of input i if it is present.
absl::Status CheckOptional(const TypeContext& c, size_t i, const Type& type) {
  if (!c.has(i) || c.in(i) == type) return absl::OkStatus();
  return Invalid("expected input ", i, " to be ", ToString(type), ", got ", ToString(c.in(i)));
}

TypesOr ConvTypes(const TypeContext& c) { return InferBase(c, 3); }

// Infers the types of cpu.MatMul. Products of bf16 accumulate in float32 and are rounded once, to the type `to`. With
// `tiles`, the second operand is float32 and rounded to the type of the first.
TypesOr MatMulTypes(const TypeContext& c) {
  Type weight = c.in(1);
  if (c.attrs.Int("tiles") != 0) {
    if (weight.dtype != DType::kFloat32 || weight.rank() != 2) return Invalid("no tiles of ", ToString(weight));
    weight.dtype = c.in(0).dtype;
  }
  const Type* const operands[] = {&c.in(0), &weight};
  ASSIGN_OR_RETURN(Types types, InferBase({c.op, operands, c.attrs}, 2));
  Type& y = types[0];
  const std::string to = c.attrs.String("to");
  if (const auto dtype = to.empty() ? y.dtype : ParseDType(to); dtype == y.dtype || (dtype && IsMultiplied(*dtype))) {
    y.dtype = *dtype;
  } else {
    return Invalid("no products of ", to);
  }
  const bool wide_bias = c.has(2) && c.in(2).dtype == DType::kFloat32;
  RETURN_IF_ERROR(CheckOptional(c, 2, {wide_bias ? DType::kFloat32 : c.in(0).dtype, {y.shape.back()}}));
  RETURN_IF_ERROR(CheckOptional(c, 3, {DType::kFloat32, y.shape}));
  if (c.has(3) && (y.dtype != DType::kFloat32 || !c.attrs.String("activation").empty()))
    return Invalid("cannot add to ", ToString(c.in(3)));
  return types;
}

TypesOr BatchNormTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckOptional(c, 3, c.in(0)));
  return InferBase(c, 3);
}

// Infers the types of cpu.BatchNormGrad, which needs the bias to recompute the mask of the Relu.
TypesOr BatchNormGradTypes(const TypeContext& c) {
  if (c.has(5) != (c.attrs.String("activation") == "Relu")) return Invalid("a bias and an activation go together");
  RETURN_IF_ERROR(CheckOptional(c, 5, c.in(2)));
  return InferBase(c, 5);
}

TypesOr BatchNormRecomputeTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Types types, InferBase(c, 3, "BatchNorm"));
  const size_t statistics = c.has(5) ? 4 : 3;
  if (c.has(5)) RETURN_IF_ERROR(CheckOptional(c, 3, c.in(0)));
  for (size_t i : {statistics, statistics + 1}) RETURN_IF_ERROR(CheckOptional(c, i, types[1]));
  return Types{types[0]};
}

TypesOr GatherGradAddTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Types types, InferBase(c, 2, "GatherGrad"));
  RETURN_IF_ERROR(CheckOptional(c, 2, types[0]));
  return types;
}

TypesOr SumSquaresTypes(const TypeContext& c) { return InferBase(c, 1, "ReduceSum"); }

std::vector<OpRow> FormRows() {
  OpRow matmul = FormOf("cpu.MatMul", MatMulTypes, 2, {kActivation, {"to", std::string()}, {"tiles", int64_t{0}}});
  matmul.overwrites = 1u << 3;
  OpRow norm = FormOf("cpu.BatchNorm", BatchNormTypes, 1, {kActivation});
  norm.layout.inputs |= 8;
  OpRow recompute = norm;
  recompute.name = "cpu.BatchNormRecompute";
  recompute.inputs = {5, 6};
  recompute.outputs = 1;
  recompute.infer = BatchNormRecomputeTypes;
  recompute.flops = FindOp("BatchNormInference")->flops;
  recompute.batch_coupled = false;
  OpRow scatter = *FindOp("GatherGrad"), squares = *FindOp("ReduceSum");
  const OpRow scatter_add = {.name = "cpu.GatherGradAdd",  // dy, indices, accumulator
                             .inputs = {3, 3},
                             .attrs = scatter.attrs,
                             .infer = GatherGradAddTypes,
                             .precision = scatter.precision,
                             .recompute = scatter.recompute,
                             .flops = scatter.flops,
                             .overwrites = 1u << 2};
  const OpRow sum_squares = {
      .name = "cpu.ReduceSumSquares", .attrs = squares.attrs, .infer = SumSquaresTypes, .layout = squares.layout};
  return {matmul,
          norm,
          recompute,
          scatter_add,
          sum_squares,
          FormOf("cpu.Conv", ConvTypes, 0, {kActivation}),
          FormOf("cpu.BatchNormGrad", BatchNormGradTypes, 1, {kActivation})};
}

}  // namespace

std::string_view BaseName(std::string_view op) { return op.substr(std::string_view("cpu.").size()); }

OpRow FormOf(std::string_view name, TypeRule infer, int more_inputs, std::vector<AttrSpec> more_attrs) {
  const OpRow& base = *FindOp(BaseName(name));
  more_attrs.insert(more_attrs.begin(), base.attrs.begin(), base.attrs.end());
  return {.name = name,
          .inputs = {base.inputs.min, base.inputs.max + more_inputs},
          .outputs = base.outputs,
          .attrs = std::move(more_attrs),
          .infer = infer,
          .precision = base.precision,
          .recompute = base.recompute,
          .flops = base.flops,
          .layout = base.layout,
          .overwrites = base.overwrites,
          .batch_coupled = base.batch_coupled,
          .is_gradient = base.is_gradient};
}

void RegisterCpuOps() {
  static const auto* rows = [] {
    auto* all = new std::vector<OpRow>;
    for (auto family : {FormRows, LayoutRows, AttentionRows, LayerNormRows, FusedRows}) {
      for (OpRow& row : family()) all->push_back(std::move(row));
    }
    return all;
  }();
  RegisterOps(*rows);
}

namespace {

// cpu.View and cpu.PackWeight change the layout of a tensor.

TypesOr ViewTypes(const TypeContext& c) {
  Type type = {c.in(0).dtype, c.attrs.Ints("shape")};
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (c.attrs.Int("channels_last") != 0) type.layout = Layout::kChannelsLast;
  const bool fits = type.rank() > 2 || type.layout == Layout::kRowMajor;
  if (!fits || type.bytes() != c.in(0).bytes())
    return Invalid("no view of ", ToString(c.in(0)), " as ", ToString(type));
  return Types{type};
}

TypesOr PackTypes(const TypeContext& c) {
  const int64_t group = c.attrs.Int("group");
  const bool flipped = c.attrs.Int("flipped") != 0;
  const std::string to = c.attrs.String("to");
  Type w = c.in(0);
  const auto packed = to.empty() ? w.dtype : ParseDType(to);
  if (!IsMultiplied(w.dtype) || !packed || !IsMultiplied(*packed) || w.rank() < 2)
    return Invalid("cannot pack ", ToString(w), to.empty() ? "" : " to ", to);
  if (group < 1 || w.shape[0] % group != 0 || (flipped && group != 1))
    return Invalid("no ", group, " groups in ", ToString(w));
  if (flipped) w = FlippedWeights(w);
  w.dtype = *packed;
  w.layout = Layout::kPacked;
  RETURN_IF_ERROR(CatchDnnlErrors([&] {
    if (const auto layout = PackedWeightLayout(w, group, c.attrs.Ints("layout"))) w.packed_bytes = layout->get_size();
  }));
  if (w.packed_bytes == 0) return Invalid("no such layout of ", ToString(c.in(0)));
  return Types{w};
}

}  // namespace

std::vector<OpRow> LayoutRows() {
  const AttrSpec shape = {"shape", std::vector<int64_t>(), true}, layout = {"layout", std::vector<int64_t>(), true};
  return {{.name = "cpu.View",
           .attrs = {shape, {"channels_last", int64_t{0}}},
           .infer = ViewTypes,
           .recompute = Recompute::kFree,
           .layout = {.inputs = 1, .any_order = true},
           .view = true},
          {.name = "cpu.PackWeight",
           .attrs = {{"group", int64_t{1}}, layout, {"flipped", int64_t{0}}, {"to", std::string()}},
           .infer = PackTypes,
           .recompute = Recompute::kExpensive,
           .derive = true}};
}

bool IsMultiplied(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

Val Reinterpret(Val x, const Type& type) {
  if (x.type() == type) return x;
  if (x.type().layout == Layout::kRowMajor && type.layout == Layout::kRowMajor) return Reshape(x, type.shape);
  return x.b().Op("cpu.View", {x},
                  {{"shape", type.shape}, {"channels_last", int64_t{type.layout == Layout::kChannelsLast}}});
}

Val ToNhwc(Val x) {
  const Type to = {x.dtype(), x.shape(), Layout::kChannelsLast};
  return Reinterpret(IsTrivialChannelsLast(x.shape()) ? x : Transpose(x, NchwToNhwcPerm(x.rank())), to);
}

Val ToNchw(Val x) {
  const Type to = {x.dtype(), x.shape()};
  if (IsTrivialChannelsLast(x.shape())) return Reinterpret(x, to);
  return Transpose(Reinterpret(x, {x.dtype(), PhysicalShape(x.type())}), NhwcToNchwPerm(x.rank()));
}

namespace {

// cpu.Attention and cpu.AttentionGrad read and write heads in the layout of the projections: strides replace the
// transposes around the canonical operators. The attribute "perms" has one permutation for every input before the mask,
// then one for every output; they transpose an input to the operand, and a result to the output. Keys and values may
// have fewer heads than queries: each serves as many successive heads of these, and its gradient is the sum of theirs.
// Their last input, after the key of a dropout, are the visible keys of the mask, if its last axes are queries and
// keys.

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
    inputs = inputs.first(std::min(inputs.size(), mask + 2));  // without visible keys
    for (const Type* type : inputs) operands.types_.push_back(type == nullptr ? Type{} : *type);
    ASSIGN_OR_RETURN(operands.types_, Transposed(std::move(operands.types_), mask, 0, attrs));
    for (const Type* type : inputs) operands.present_.push_back(type != nullptr);
    RETURN_IF_ERROR(operands.RepeatHeads(mask));
    return operands;
  }

  int64_t rows(size_t operand) const { return types_[operand].shape[types_[operand].rank() - 2]; }
  // Returns the heads of keys and values if they are repeated, else 0.
  int64_t groups() const { return groups_; }

  // Returns null for absent inputs.
  std::vector<const Type*> pointers() const {
    std::vector<const Type*> pointers;
    for (size_t i = 0; i < types_.size(); ++i) pointers.push_back(present_[i] ? &types_[i] : nullptr);
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

TypesOr InferHeadTypes(const TypeContext& c) {
  const size_t mask = MaskIndex(c.op), outputs = FindOp(BaseName(c.op))->outputs;
  if (c.attrs.Ints("perms").size() != (mask + outputs) * c.in(0).rank())
    return Invalid("permutations of the wrong length");
  ASSIGN_OR_RETURN(const Operands operands, Operands::Make(c.inputs, mask, c.attrs));
  Attrs attrs = c.attrs;
  attrs.Erase("perms");
  ASSIGN_OR_RETURN(Types types, InferTypes(BaseName(c.op), operands.pointers(), attrs));
  RETURN_IF_ERROR(CheckVisibleKeys(c, mask, operands.rows(mask - 3), operands.rows(mask - 2)));
  for (size_t o = 1; o < outputs && operands.groups() > 0; ++o) CountHeads(types[o].shape) = operands.groups();
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
  OpRow forward = FormOf("cpu.Attention", InferHeadTypes, 1, {perms}),
        backward = FormOf("cpu.AttentionGrad", InferHeadTypes, 1, {perms});
  const OpRow visible_keys = {.name = "cpu.VisibleKeys", .infer = VisibleKeysTypes};
  forward.flops = Flops<kForward>;
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
  for (size_t o = 0; o < c.node.outputs.size(); ++o) {
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
