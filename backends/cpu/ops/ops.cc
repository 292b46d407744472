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

}  // namespace onnxtrain::cpu
