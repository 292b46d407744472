#include "frontend/ops/random.h"
#include "frontend/ops/export/onnx_export.h"

#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

absl::StatusOr<std::vector<Type>> InferDropout(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  RETURN_IF_ERROR(CheckDropout(c, 1));
  return std::vector<Type>{c.in(0)};
}

absl::StatusOr<std::vector<Type>> InferRandom(const TypeContext& c) {
  RETURN_IF_ERROR(CheckInputType(c, 0, {DType::kUInt32, {4}}));
  const std::optional<DType> dtype = ParseDType(c.attrs.String("dtype"));
  if (!dtype || !IsFloat(*dtype)) return Invalid("dtype '", c.attrs.String("dtype"), "' is not a floating-point type");
  return std::vector<Type>{{*dtype, c.attrs.Ints("shape")}};
}

// Applies Dropout to the gradient, which draws the same mask, since the mask depends only on key and stream.
std::vector<Val> DropoutGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  return {c.b.Op("Dropout", {c.dy(), c.x(1)}, attrs), Val()};
}

std::vector<HostTensor> EvaluateDropout(const EvalContext& c) {
  const auto words = c.inputs[1]->data<uint32_t>();
  const PhiloxKey key = PhiloxKey::From(words.data());
  const double ratio = c.attrs.Float("ratio");
  HostTensor y(c.output_types[0]);
  const uint64_t first = FirstElement(key.piece, y.size());
  for (int64_t i = 0; i < y.size(); ++i) {
    const float u = WordToUniform(RandomWord(key, c.attrs.Int("stream"), first + i));
    y.Set(i, (u >= static_cast<float>(ratio) ? 1.0 : 0.0) * c.inputs[0]->At(i) / (1 - ratio));
  }
  return {y};
}

absl::StatusOr<std::vector<Type>> InferRounding(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckInputType(c, 1, {DType::kInt64, {}}));
  return std::vector<Type>{{DType::kBFloat16, c.in(0).shape}};
}

std::vector<HostTensor> EvaluateRounding(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const HostTensor floats = c.inputs[0]->CastTo(DType::kFloat32);
  const auto x = floats.data<uint32_t>();
  const PhiloxKey key = UpdateKey(c.attrs.Int("seed"), c.inputs[1]->IntAt(0));
  for (int64_t i = 0; i < y.size(); ++i)
    y.mutable_data<uint16_t>()[i] = RoundStochastically(x[i], RandomWord(key, c.attrs.Int("stream"), i));
  return {std::move(y)};
}

}  // namespace

std::span<const OpRow> RandomOps() {
  const AttrSpec stream = {"stream", int64_t{0}, true};
  const AttrSpec shape = {"shape", std::vector<int64_t>(), true};
  const AttrSpec dtype = {"dtype", std::string("f32")};
  static const std::vector<OpRow> rows = {
      {.name = "Dropout",
       .inputs = {2, 2},
       .attrs = {{"ratio", 0.5}, stream},
       .infer = InferDropout,
       .grad_status = GradStatus::kFormula,
       .gradient = DropoutGradient,
       .evaluate = EvaluateDropout,
       .init = {.transparent = true},
       .emit = EmitDropout,
       .simplify = SimplifyDropout},
      {.name = "RandomUniform",
       .inputs = {1, 1},
       .attrs = {shape, dtype, {"low", 0.0}, {"high", 1.0}, stream},
       .infer = InferRandom,
       .grad_status = GradStatus::kZero},
      {.name = "RandomNormal",
       .inputs = {1, 1},
       .attrs = {shape, dtype, {"mean", 0.0}, {"scale", 1.0}, stream},
       .infer = InferRandom,
       .grad_status = GradStatus::kZero},
      {.name = "RoundStochastic",
       .inputs = {2, 2},
       .attrs = {{"seed", int64_t{0}, true}, stream},
       .infer = InferRounding,
       .grad_status = GradStatus::kZero,
       .evaluate = EvaluateRounding,
       .precision = Precision::kFloat32},
  };
  return rows;
}

}  // namespace onnxtrain
