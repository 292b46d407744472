// Random operators: functions of a fed key and of their stream attribute (philox.h, README.md).
#include "frontend/ops/nn_rules.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

const Type& KeyType() {
  static const Type type = {DType::kUInt32, {4}};
  return type;
}

absl::StatusOr<std::vector<Type>> InferDropout(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  RETURN_IF_ERROR(CheckInputType(c, 1, KeyType()));
  const double ratio = c.attrs.Float("ratio");
  if (!(ratio >= 0 && ratio < 1)) return Invalid("ratio ", ratio, " is outside [0, 1)");
  return std::vector<Type>{c.in(0)};
}

absl::StatusOr<std::vector<Type>> InferRandom(const TypeContext& c) {
  RETURN_IF_ERROR(CheckInputType(c, 0, KeyType()));
  const std::optional<DType> dtype = ParseDType(c.attrs.String("dtype"));
  if (!dtype || !IsFloat(*dtype)) return Invalid("dtype '", c.attrs.String("dtype"), "' is not a floating-point type");
  return std::vector<Type>{{*dtype, c.attrs.Ints("shape")}};
}

// The mask is a function of the key and the stream, so the same node masks the gradient.
std::vector<Val> DropoutGradient(const GradContext& c) {
  const Attrs attrs = c.node.attrs;
  return {c.b.Op("Dropout", {c.dy(), c.x(1)}, attrs), Val()};
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
       .init = {.transparent = true}},
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
  };
  return rows;
}

}  // namespace onnxtrain
