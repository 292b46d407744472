#include "backends/cpu/channels_last_ops.h"

#include <algorithm>

#include "backends/cpu/guard.h"
#include "backends/cpu/kernels/conv.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {

Shape ChannelsLastShape(const Shape& shape) {
  Shape moved = shape;
  if (moved.size() > 2) std::rotate(moved.begin() + 1, moved.begin() + 2, moved.end());
  return moved;
}

Shape ChannelsFirstShape(const Shape& shape) {
  Shape moved = shape;
  if (moved.size() > 2) std::rotate(moved.begin() + 1, moved.end() - 1, moved.end());
  return moved;
}

namespace {

using Types = std::vector<Type>;
using Names = std::vector<std::string_view>;

Type First(const Type& t) { return {t.dtype, ChannelsFirstShape(t.shape)}; }
Type Last(const Type& t) { return {t.dtype, ChannelsLastShape(t.shape)}; }

Attrs Chosen(const Attrs& from, const std::vector<AttrSpec>& specs) {
  Attrs attrs;
  for (const AttrSpec& spec : specs) {
    const std::string name(spec.name);
    if (std::holds_alternative<int64_t>(spec.value)) {
      attrs.Set(name, from.Int(name));
    } else {
      attrs.Set(name, from.Ints(name));
    }
  }
  return attrs;
}

std::vector<AttrSpec> RequiredInts(std::initializer_list<std::string_view> names) {
  std::vector<AttrSpec> specs;
  for (std::string_view name : names) specs.push_back({name, std::vector<int64_t>(), true});
  return specs;
}

// What the operator of this name gives for channels-first inputs of these types.
absl::StatusOr<Types> AsFirst(std::string_view op, const std::vector<Type>& inputs, Attrs attrs) {
  std::vector<const Type*> pointers;
  for (const Type& t : inputs) pointers.push_back(&t);
  return InferTypes(op, pointers, attrs);
}

// --- Convolutions -----------------------------------------------------------------------------------------------------

std::vector<AttrSpec> ConvAttrs() {
  std::vector<AttrSpec> specs = RequiredInts({"strides", "pads", "dilations"});
  specs.push_back({"group", int64_t{1}});
  return specs;
}

std::vector<AttrSpec> ConvAttrsAnd(std::initializer_list<AttrSpec> more) {
  std::vector<AttrSpec> specs = ConvAttrs();
  specs.insert(specs.end(), more);
  return specs;
}

AttrSpec Ints(std::string_view name) { return {name, std::vector<int64_t>(), true}; }

// What is multiplied, as the operator's rule for float32 sees it: the result always has that type.
absl::StatusOr<Type> Factor(const Type& t) {
  if (t.dtype != DType::kFloat32 && t.dtype != DType::kBFloat16) return Invalid("expected f32 or bf16, got ", ToString(t));
  return Type{DType::kFloat32, ChannelsFirstShape(t.shape)};
}

// The weights as they were before they were packed.
absl::StatusOr<Type> PlainWeights(const TypeContext& c) {
  const Shape shape = c.attrs.Ints("weight_shape");
  RETURN_IF_ERROR(CheckShape(shape));
  if (c.in(1).dtype != DType::kUInt8 || c.in(1).rank() != 1) return Invalid("expected packed weights, got ", ToString(c.in(1)));
  return Type{DType::kFloat32, shape};
}

// A result as channels last, of the type that the node is asked for.
absl::StatusOr<Types> Result(const TypeContext& c, const Type& first) {
  const auto to = DTypeOf(c.attrs.String("to"));
  if (to != DType::kFloat32 && (to != DType::kBFloat16 || c.in(0).dtype != *to)) return Invalid("no convolution of ", ToString(c.in(0)), " to ", c.attrs.String("to"));
  return Types{{*to, Last(first).shape}};
}

absl::StatusOr<Types> ConvTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Type w, PlainWeights(c));
  ASSIGN_OR_RETURN(const Type x, Factor(c.in(0)));
  Types inputs = {x, w};
  if (c.has(2)) inputs.push_back(c.in(2));
  ASSIGN_OR_RETURN(const Types y, AsFirst("Conv", inputs, Chosen(c.attrs, ConvAttrs())));
  return Result(c, y[0]);
}

absl::StatusOr<Types> ConvTransposeTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Type w, PlainWeights(c));
  ASSIGN_OR_RETURN(const Type dy, Factor(c.in(0)));
  ASSIGN_OR_RETURN(const Types dx, AsFirst("ConvTranspose", {dy, w},
                                           Chosen(c.attrs, ConvAttrsAnd({Ints("output_shape")}))));
  return Result(c, dx[0]);
}

absl::StatusOr<Types> ConvWeightGradTypes(const TypeContext& c) {
  if (c.in(0).dtype != c.in(1).dtype) return Invalid("cannot multiply ", ToString(c.in(0)), " and ", ToString(c.in(1)));
  ASSIGN_OR_RETURN(const Type x, Factor(c.in(0)));
  ASSIGN_OR_RETURN(const Type dy, Factor(c.in(1)));
  return AsFirst("ConvWeightGrad", {x, dy}, Chosen(c.attrs, ConvAttrsAnd({Ints("kernel_shape")})));
}

absl::StatusOr<Types> PackConvWeightTypes(const TypeContext& c) {
  RETURN_IF_ERROR(Factor(c.in(0)).status());
  const Shape& shape = c.in(0).shape;
  const int64_t group = c.attrs.Int("group");
  const bool turned = c.attrs.Int("turned") != 0;
  if (turned && (group != 1 || shape.size() < 2)) return Invalid("only weights of one group are turned");
  if (group < 1 || shape.empty() || shape[0] % group != 0) return Invalid("no ", group, " groups in ", ToString(c.in(0)));
  size_t bytes = 0;
  RETURN_IF_ERROR(Guard([&] {
    const Type w = turned ? TurnedWeights(c.in(0)) : c.in(0);
    if (const auto layout = PackedConvLayout(w, group, c.attrs.Ints("layout"))) bytes = layout->get_size();
  }));
  if (bytes == 0) return Invalid("no layout of ", ToString(c.in(0)));
  return Types{{DType::kUInt8, {static_cast<int64_t>(bytes)}}};
}

using Inputs = std::span<const Type* const>;

double Products(const Type& y, const Shape& w) {
  double flops = 2.0 * static_cast<double>(y.elements());
  for (size_t a = 1; a < w.size(); ++a) flops *= static_cast<double>(w[a]);
  return flops;
}

double ConvFlops(Inputs, std::span<const Type> out, const Attrs& attrs) { return Products(out[0], attrs.Ints("weight_shape")); }
double ConvTransposeFlops(Inputs in, std::span<const Type>, const Attrs& attrs) {
  return Products(*in[0], attrs.Ints("weight_shape"));
}
double ConvWeightGradFlops(Inputs in, std::span<const Type> out, const Attrs&) { return Products(*in[1], out[0].shape); }

std::vector<OpRow> ConvRows() {
  const AttrSpec weights = Ints("weight_shape"), to = {"to", std::string("f32")};
  return {{.name = "cpu.Conv", .inputs = {2, 3}, .attrs = ConvAttrsAnd({weights, {"activation", std::string()}, to}),
           .infer = ConvTypes, .precision = Precision::kLow, .recompute = Recompute::kExpensive, .flops = ConvFlops},
          {.name = "cpu.ConvTranspose", .inputs = {2, 2}, .attrs = ConvAttrsAnd({weights, Ints("output_shape"), to}),
           .infer = ConvTransposeTypes, .precision = Precision::kLow, .recompute = Recompute::kExpensive,
           .flops = ConvTransposeFlops},
          {.name = "cpu.ConvWeightGrad", .inputs = {2, 2}, .attrs = ConvAttrsAnd({Ints("kernel_shape")}),
           .infer = ConvWeightGradTypes, .precision = Precision::kLow, .recompute = Recompute::kExpensive,
           .flops = ConvWeightGradFlops},
          {.name = "cpu.PackConvWeight", .attrs = {{"group", int64_t{1}}, Ints("layout"), {"turned", int64_t{0}}},
           .infer = PackConvWeightTypes, .recompute = Recompute::kExpensive, .derive = true}};
}

// --- Normalization ----------------------------------------------------------------------------------------------------

bool IsNormalized(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16; }

// Inputs `first`… are all [C] for x […,C], and float32 whatever x is.
absl::Status CheckChannels(const TypeContext& c, const Type& x, size_t first, size_t last) {
  if (!IsNormalized(x.dtype) || x.rank() < 2) return Invalid("expected f32[…,C] or bf16[…,C], got ", ToString(x));
  for (size_t i = first; i <= last; ++i) {
    if (c.in(i) != Type{DType::kFloat32, {x.shape.back()}}) {
      return Invalid("expected ", x.shape.back(), " channels, got ", ToString(c.in(i)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Types> BatchNormTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckChannels(c, c.in(0), 1, 2));
  if (c.has(3) && c.in(3) != c.in(0)) return Invalid("expected a residual ", ToString(c.in(0)), ", got ", ToString(c.in(3)));
  return Types{c.in(0), c.in(1), c.in(1)};
}

// The bias says where the Relu behind the normalization cut.
absl::StatusOr<Types> BatchNormGradTypes(const TypeContext& c) {
  if (c.has(5) != (c.attrs.String("activation") == "Relu")) return Invalid("a bias and an activation go together");
  RETURN_IF_ERROR(CheckChannels(c, c.in(1), 2, c.has(5) ? 5 : 4));
  if (c.in(0) != c.in(1)) return Invalid("expected ", ToString(c.in(1)), ", got ", ToString(c.in(0)));
  return Types{c.in(1), c.in(2), c.in(2)};
}

absl::StatusOr<Types> BatchNormInferenceTypes(const TypeContext& c) {
  RETURN_IF_ERROR(CheckChannels(c, c.in(0), 1, 4));
  return Types{c.in(0)};
}

absl::StatusOr<Types> BatchNormAgainTypes(const TypeContext& c) {
  const size_t statistics = c.has(5) ? 4 : 3;
  RETURN_IF_ERROR(CheckChannels(c, c.in(0), 1, 2));
  RETURN_IF_ERROR(CheckChannels(c, c.in(0), statistics, statistics + 1));
  if (c.has(5) && c.in(3) != c.in(0)) return Invalid("expected a residual ", ToString(c.in(0)), ", got ", ToString(c.in(3)));
  return Types{c.in(0)};
}

template <int kPerElement>
double PerElement(std::span<const Type* const>, std::span<const Type> out, const Attrs&) {
  return kPerElement * static_cast<double>(out[0].elements());
}

// All sums are made before the first element is written: one pass for them (three operations per element, of the gradient four), one
// that writes (three, five).
std::vector<OpRow> NormRows() {
  const AttrSpec epsilon = {"epsilon", 1e-5};
  const AttrSpec activation = {"activation", std::string()};
  return {{.name = "cpu.BatchNorm", .inputs = {3, 4}, .outputs = 3, .attrs = {epsilon, activation}, .infer = BatchNormTypes,
           .precision = Precision::kFloat32, .flops = PerElement<6>, .overwrites = kAnyInput, .batch_coupled = true},
          {.name = "cpu.BatchNormGrad", .inputs = {5, 6}, .outputs = 3, .attrs = {activation}, .infer = BatchNormGradTypes,
           .precision = Precision::kFloat32, .flops = PerElement<9>, .overwrites = kAnyInput, .batch_coupled = true},
          {.name = "cpu.BatchNormAgain", .inputs = {5, 6}, .attrs = {epsilon, activation}, .infer = BatchNormAgainTypes,
           .precision = Precision::kFloat32, .flops = PerElement<3>, .overwrites = kAnyInput},
          {.name = "cpu.BatchNormInference", .inputs = {5, 5}, .attrs = {epsilon}, .infer = BatchNormInferenceTypes,
           .precision = Precision::kFloat32, .flops = PerElement<3>, .overwrites = kAnyInput}};
}

// --- Pooling ----------------------------------------------------------------------------------------------------------

std::vector<AttrSpec> PoolAttrs() { return RequiredInts({"kernel_shape", "strides", "pads", "dilations"}); }

std::vector<AttrSpec> PoolAttrsAnd(std::initializer_list<AttrSpec> more) {
  std::vector<AttrSpec> specs = PoolAttrs();
  specs.insert(specs.end(), more);
  return specs;
}

const AttrSpec kIncludePad = {"count_include_pad", int64_t{0}};

absl::StatusOr<Types> MaxPoolTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Types y, AsFirst("MaxPool", {First(c.in(0))}, Chosen(c.attrs, PoolAttrs())));
  const Type last = Last(y[0]);
  return Types{last, {DType::kUInt8, last.shape}};
}

absl::StatusOr<Types> MaxPoolGradTypes(const TypeContext& c) {
  const Type dx = {c.in(0).dtype, c.attrs.Ints("input_shape")};
  RETURN_IF_ERROR(CheckShape(dx.shape));
  ASSIGN_OR_RETURN(const Types y, AsFirst("MaxPool", {First(dx)}, Chosen(c.attrs, PoolAttrs())));
  if (Last(y[0]) != c.in(0)) return Invalid("pooling ", ToString(dx), " cannot give ", ToString(c.in(0)));
  if (c.in(1) != Type{DType::kUInt8, c.in(0).shape}) return Invalid("expected one place per maximum, got ", ToString(c.in(1)));
  return Types{dx};
}

absl::StatusOr<Types> AveragePoolTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Types y, AsFirst("AveragePool", {First(c.in(0))}, Chosen(c.attrs, PoolAttrsAnd({kIncludePad}))));
  return Types{Last(y[0])};
}

absl::StatusOr<Types> AveragePoolGradTypes(const TypeContext& c) {
  const Type dx = {c.in(0).dtype, c.attrs.Ints("input_shape")};
  RETURN_IF_ERROR(CheckShape(dx.shape));
  ASSIGN_OR_RETURN(const Types y, AsFirst("AveragePool", {First(dx)}, Chosen(c.attrs, PoolAttrsAnd({kIncludePad}))));
  if (Last(y[0]) != c.in(0)) return Invalid("pooling ", ToString(dx), " cannot give ", ToString(c.in(0)));
  return Types{dx};
}

std::vector<OpRow> PoolRows() {
  return {{.name = "cpu.MaxPool", .outputs = 2, .attrs = PoolAttrs(), .infer = MaxPoolTypes},
          {.name = "cpu.MaxPoolGrad", .inputs = {2, 2}, .attrs = PoolAttrsAnd({Ints("input_shape")}), .infer = MaxPoolGradTypes},
          {.name = "cpu.AveragePool", .attrs = PoolAttrsAnd({kIncludePad}), .infer = AveragePoolTypes},
          {.name = "cpu.AveragePoolGrad", .attrs = PoolAttrsAnd({kIncludePad, Ints("input_shape")}),
           .infer = AveragePoolGradTypes}};
}

}  // namespace

std::vector<OpRow> ChannelsLastRows() {
  std::vector<OpRow> rows;
  for (auto family : {ConvRows, NormRows, PoolRows}) {
    for (OpRow& row : family()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace onnxtrain::cpu
