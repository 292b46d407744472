#include "backends/cpu/ops/norm_ops.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/nn_rules.h"

namespace onnxtrain::cpu {
namespace {

using Types = std::vector<Type>;

// A tensor that is normalized over its axes from `axis` on.
struct Normalized {
  Shape shape;
  int64_t axis;

  Shape row() const { return Shape(shape.begin() + axis, shape.end()); }
  Shape statistic() const {
    Shape s = shape;
    std::fill(s.begin() + axis, s.end(), 1);
    return s;
  }
};

absl::StatusOr<Normalized> MakeNormalized(const TypeContext& c, size_t x) {
  if (!c.has(x)) return Invalid("expected a tensor to normalize");
  const Normalized n{c.in(x).shape, c.attrs.Int("axis")};
  if (n.axis < 0 || n.axis >= c.in(x).rank()) return Invalid("axis ", n.axis, " of ", ToString(c.in(x)));
  if (NumElements(n.row()) > kMaxNormRow) return Invalid("rows of more than ", kMaxNormRow, " elements");
  return n;
}

// Checks that the inputs from `first` on are terms of this shape.
absl::Status CheckTerms(const TypeContext& c, size_t first, const Shape& shape) {
  if (first >= c.inputs.size()) return Invalid("no terms");
  for (size_t i = first; i < c.inputs.size(); ++i) {
    const bool fits =
        c.has(i) && (c.in(i).dtype == DType::kFloat32 || c.in(i).dtype == DType::kBFloat16) && c.in(i).shape == shape;
    if (!fits) return Invalid("term ", i - first, " is not f32 or bf16 of ", ToString(Type{DType::kFloat32, shape}));
  }
  return absl::OkStatus();
}

bool HasMean(const TypeContext& c) { return c.op.starts_with("cpu.LayerNorm"); }

absl::Status CheckKey(const TypeContext& c, size_t key, bool drops) {
  if (c.has(key) != drops) return Invalid("expected a key with a dropout, and only then");
  const double ratio = c.attrs.Float("ratio");
  if (!(ratio >= 0 && ratio < 1)) return Invalid("ratio ", ratio, " is outside [0, 1)");
  return drops ? CheckInputType(c, key, {DType::kUInt32, {4}}) : absl::OkStatus();
}

// Returns the types of the listed results. RMSNorm has no result `mean_result`.
template <typename Result>
absl::StatusOr<Types> SelectTypes(const TypeContext& c, const Types& all, Result mean_result) {
  Types types;
  int64_t last = -1;
  for (int64_t result : c.attrs.Ints("results")) {
    if (result <= last || result >= std::ssize(all)) return Invalid("results out of order");
    if (result == static_cast<int64_t>(mean_result) && !HasMean(c)) return Invalid("RMSNorm has no result ", result);
    types.push_back(all[result]);
    last = result;
  }
  return types;
}

absl::StatusOr<Types> NormTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Normalized n, MakeNormalized(c, kNormTerms));
  RETURN_IF_ERROR(CheckTerms(c, kNormTerms, n.shape));
  for (size_t i : {kNormScale, kNormBias}) {
    if (c.has(i)) RETURN_IF_ERROR(CheckInputType(c, i, {DType::kFloat32, n.row()}));
  }
  if (c.has(kNormBias) && !HasMean(c)) return Invalid("RMSNorm has no bias");
  const int64_t dropped = c.attrs.Int("dropped");
  if (!c.has(kNormScale) || dropped < -1 || dropped >= std::ssize(c.inputs) - static_cast<int64_t>(kNormTerms))
    return Invalid("there is no term ", dropped);
  RETURN_IF_ERROR(CheckKey(c, kNormKey, dropped >= 0));
  const Type wide{DType::kFloat32, n.shape}, low{DType::kBFloat16, n.shape}, statistic{DType::kFloat32, n.statistic()};
  return SelectTypes(c, {wide, wide, low, statistic, statistic}, NormResult::kMean);
}

absl::StatusOr<Types> NormGradTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const Normalized n, MakeNormalized(c, kNormGradSum));
  RETURN_IF_ERROR(CheckTerms(c, kNormGradTerms, n.shape));
  const int64_t more = c.attrs.Int("more");
  if (more < 0 || more >= std::ssize(c.inputs) - static_cast<int64_t>(kNormGradTerms))
    return Invalid("there are no ", more, " further terms");
  const Type wide{DType::kFloat32, n.shape}, low{DType::kBFloat16, n.shape}, row{DType::kFloat32, n.row()};
  const Type statistic{DType::kFloat32, n.statistic()};
  const std::array<const Type*, 5> expected = {&row, &statistic, HasMean(c) ? &statistic : nullptr, nullptr, &wide};
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i == kNormGradKey) continue;
    if (c.has(i) != (expected[i] != nullptr)) return Invalid("input ", i, c.has(i) ? " is unexpected" : " is missing");
    if (c.has(i)) RETURN_IF_ERROR(CheckInputType(c, i, *expected[i]));
  }
  RETURN_IF_ERROR(CheckKey(c, kNormGradKey, c.has(kNormGradKey)));
  return SelectTypes(c, {wide, low, row, wide, low, row, row, row}, NormGradResult::kBias);
}

}  // namespace

std::vector<OpRow> LayerNormRows() {
  const int64_t zero = 0;
  const std::vector<int64_t> ints;
  const AttrSpec axis = {"axis", zero, true}, ratio = {"ratio", 0.0}, stream = {"stream", zero};
  const AttrSpec results = {"results", ints, true}, count = {"num_outputs", zero, true};
  const OpRow norm = {.name = "cpu.LayerNorm",
                      .inputs = {1, Arity::kMany},
                      .outputs = kOutputsFromAttr,
                      .attrs = {axis, {"epsilon", 1e-5}, ratio, stream, {"dropped", int64_t{-1}}, results, count},
                      .infer = NormTypes,
                      .precision = Precision::kFloat32,
                      .overwrites = kAnyInput};
  const OpRow grad = {.name = "cpu.LayerNormGrad",
                      .inputs = {2, Arity::kMany},
                      .outputs = kOutputsFromAttr,
                      .attrs = {axis, ratio, stream, {"more", zero}, results, count},
                      .infer = NormGradTypes,
                      .precision = Precision::kFloat32,
                      .overwrites = kAnyInput};
  std::vector<OpRow> rows = {norm, grad, norm, grad};
  rows[2].name = "cpu.RmsNorm";
  rows[3].name = "cpu.RmsNormGrad";
  return rows;
}

}  // namespace onnxtrain::cpu
