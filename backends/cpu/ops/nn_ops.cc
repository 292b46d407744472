#include "backends/cpu/ops/nn_ops.h"

#include <numeric>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/runtime/guard.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

using Types = std::vector<Type>;

std::vector<int64_t> Axes(int rank) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return axes;
}

Attrs Without(Attrs attrs, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) attrs.Erase(name);
  return attrs;
}

// The types of the operator of this name for the first `count` inputs.
absl::StatusOr<Types> InferAs(std::string_view op, const TypeContext& c, size_t count, Attrs attrs) {
  return InferTypes(op, c.inputs.first(std::min(count, c.inputs.size())), attrs);
}

// The row of the operator without "cpu.", whose traits its form here shares.
OpRow FormOf(std::string_view name) {
  const OpRow& base = *FindOp(name.substr(std::string_view("cpu.").size()));
  return {.name = name,
          .inputs = base.inputs,
          .outputs = base.outputs,
          .attrs = base.attrs,
          .precision = base.precision,
          .recompute = base.recompute,
          .flops = base.flops,
          .layout = base.layout,
          .overwrites = base.overwrites,
          .batch_coupled = base.batch_coupled,
          .is_gradient = base.is_gradient};
}

// --- Layouts

absl::StatusOr<Types> ViewTypes(const TypeContext& c) {
  Type type = {c.in(0).dtype, c.attrs.Ints("shape")};
  RETURN_IF_ERROR(CheckShape(type.shape));
  if (c.attrs.Int("channels_last") != 0) type.layout = Layout::kChannelsLast;
  const bool fits = type.rank() > 2 || type.layout == Layout::kRowMajor;
  if (!fits || type.bytes() != c.in(0).bytes())
    return Invalid("no view of ", ToString(c.in(0)), " as ", ToString(type));
  return Types{type};
}

absl::StatusOr<Types> PackConvWeightTypes(const TypeContext& c) {
  const int64_t group = c.attrs.Int("group");
  const bool flipped = c.attrs.Int("flipped") != 0;
  Type w = c.in(0);
  if (w.dtype != DType::kFloat32 && w.dtype != DType::kBFloat16)
    return Invalid("expected f32 or bf16, got ", ToString(w));
  if (flipped && (group != 1 || w.rank() < 2)) return Invalid("cannot flip weights of ", group, " groups");
  if (group < 1 || w.shape.empty() || w.shape[0] % group != 0) return Invalid("no ", group, " groups in ", ToString(w));
  if (flipped) w = FlippedWeights(w);
  w.layout = Layout::kPacked;
  RETURN_IF_ERROR(CatchDnnlErrors([&] {
    if (const auto layout = PackedConvLayout(w, group, c.attrs.Ints("layout"))) w.packed_bytes = layout->get_size();
  }));
  if (w.packed_bytes == 0) return Invalid("no such layout of ", ToString(c.in(0)));
  return Types{w};
}

std::vector<OpRow> LayoutRows() {
  const AttrSpec shape = {"shape", std::vector<int64_t>(), true}, layout = {"layout", std::vector<int64_t>(), true};
  return {{.name = "cpu.View",
           .attrs = {shape, {"channels_last", int64_t{0}}},
           .infer = ViewTypes,
           .recompute = Recompute::kFree,
           .layout = {.inputs = 1, .any_order = true},
           .view = true},
          {.name = "cpu.PackConvWeight",
           .attrs = {{"group", int64_t{1}}, layout, {"flipped", int64_t{0}}},
           .infer = PackConvWeightTypes,
           .recompute = Recompute::kExpensive,
           .derive = true}};
}

// --- Convolutions

// Products of bf16 are accumulated in float32 and rounded once, to the type `to`. The bias is float32.
absl::StatusOr<Types> ConvTypes(const TypeContext& c) {
  const auto to = ParseDType(c.attrs.String("to", "f32"));
  const DType factors = c.in(0).dtype;
  if (to != DType::kFloat32 && (to != DType::kBFloat16 || factors != *to))
    return Invalid("no convolution of ", ToString(c.in(0)), " to ", c.attrs.String("to"));
  if (factors != c.in(1).dtype) return Invalid("cannot multiply ", ToString(c.in(0)), " and ", ToString(c.in(1)));
  Types wide;
  for (const Type* type : c.inputs) wide.push_back(type == nullptr ? Type{} : *type);
  std::vector<const Type*> inputs;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (i < 2 && factors == DType::kBFloat16) wide[i].dtype = DType::kFloat32;
    inputs.push_back(c.has(i) ? &wide[i] : nullptr);
  }
  Attrs attrs = Without(c.attrs, {"to", "activation"});
  ASSIGN_OR_RETURN(Types types, InferTypes(c.op.substr(std::string_view("cpu.").size()), inputs, attrs));
  types[0].dtype = *to;
  return types;
}

const AttrSpec kActivation = {"activation", std::string()}, kTo = {"to", std::string("f32")};

OpRow ConvRow(std::string_view name, std::initializer_list<AttrSpec> epilogue) {
  OpRow row = FormOf(name);
  row.attrs.insert(row.attrs.end(), epilogue);
  row.infer = ConvTypes;
  return row;
}

// --- Normalization

absl::Status CheckResidual(const TypeContext& c, size_t i) {
  if (!c.has(i) || *c.inputs[i] == c.in(0)) return absl::OkStatus();
  return Invalid("expected a residual ", ToString(c.in(0)), ", got ", ToString(c.in(i)));
}

absl::StatusOr<Types> BatchNormTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckResidual(c, 3));
  return InferAs("BatchNorm", c, 3, Without(c.attrs, {"activation"}));
}

// The bias tells where the Relu after the normalization is 0.
absl::StatusOr<Types> BatchNormGradTypes(const TypeContext& c) {
  if (c.has(5) != (c.attrs.String("activation") == "Relu")) return Invalid("a bias and an activation go together");
  if (c.has(5) && c.in(5) != c.in(2))
    return Invalid("expected a bias ", ToString(c.in(2)), ", got ", ToString(c.in(5)));
  return InferAs("BatchNormGrad", c, 5, {});
}

absl::StatusOr<Types> BatchNormRecomputeTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Types types, InferAs("BatchNorm", c, 3, Without(c.attrs, {"activation"})));
  const size_t statistics = c.has(5) ? 4 : 3;
  if (c.has(5)) RETURN_IF_ERROR(CheckResidual(c, 3));
  for (size_t i : {statistics, statistics + 1}) {
    if (c.in(i) != types[1]) return Invalid("expected statistics ", ToString(types[1]), ", got ", ToString(c.in(i)));
  }
  return Types{types[0]};
}

std::vector<OpRow> NormRows() {
  OpRow norm = FormOf("cpu.BatchNorm"), grad = FormOf("cpu.BatchNormGrad");
  norm.inputs = {3, 4};
  norm.attrs.push_back(kActivation);
  norm.infer = BatchNormTypes;
  norm.layout.inputs |= 8;
  grad.inputs = {5, 6};
  grad.attrs.push_back(kActivation);
  grad.infer = BatchNormGradTypes;
  OpRow recompute = norm;
  recompute.name = "cpu.BatchNormRecompute";
  recompute.inputs = {5, 6};
  recompute.outputs = 1;
  recompute.infer = BatchNormRecomputeTypes;
  recompute.flops = FindOp("BatchNormInference")->flops;
  recompute.batch_coupled = false;
  return {norm, grad, recompute};
}

// --- Pooling

absl::StatusOr<Types> MaxPoolTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(Types types, InferAs("MaxPool", c, 1, c.attrs));
  types[1].dtype = DType::kUInt8;
  return types;
}

absl::StatusOr<Types> MaxPoolGradTypes(const TypeContext& c) {
  const Type dx = {c.in(0).dtype, c.attrs.Ints("input_shape")};
  RETURN_IF_ERROR(CheckShape(dx.shape));
  const Type* x = &dx;
  Attrs attrs = Without(c.attrs, {"input_shape"});
  ASSIGN_OR_RETURN(const Types y, InferTypes("cpu.MaxPool", {&x, 1}, attrs));
  if (y[0] != c.in(0) || y[1] != c.in(1)) return Invalid("pooling ", ToString(dx), " cannot give ", ToString(c.in(0)));
  return Types{dx};
}

std::vector<OpRow> PoolRows() {
  OpRow pool = FormOf("cpu.MaxPool"), grad = FormOf("cpu.MaxPoolGrad");
  pool.infer = MaxPoolTypes;
  grad.attrs.insert(grad.attrs.end(), pool.attrs.begin(), pool.attrs.end());
  grad.infer = MaxPoolGradTypes;
  return {pool, grad};
}

}  // namespace

std::vector<OpRow> NnRows() {
  std::vector<OpRow> rows = {ConvRow("cpu.Conv", {kTo, kActivation}), ConvRow("cpu.ConvTranspose", {kTo}),
                             ConvRow("cpu.ConvWeightGrad", {})};
  for (auto family : {LayoutRows, NormRows, PoolRows}) {
    for (OpRow& row : family()) rows.push_back(std::move(row));
  }
  return rows;
}

Val Reinterpret(Val x, const Type& type) {
  if (x.type() == type) return x;
  if (x.type().layout == Layout::kRowMajor && type.layout == Layout::kRowMajor) return Reshape(x, type.shape);
  return x.b().Op("cpu.View", {x},
                  {{"shape", type.shape}, {"channels_last", int64_t{type.layout == Layout::kChannelsLast}}});
}

std::vector<int64_t> NchwToNhwcPerm(int rank) { return ToChannelsLast(Axes(rank)); }
std::vector<int64_t> NhwcToNchwPerm(int rank) { return ToChannelsFirst(Axes(rank)); }

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
