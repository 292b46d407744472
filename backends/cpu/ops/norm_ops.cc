#include "backends/cpu/ops/ops.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/rules.h"

namespace onnxtrain::cpu {
namespace {

bool HasMean(const TypeContext& c) { return c.op.starts_with("cpu.LayerNorm"); }

// The types of operands and results of a normalization over the axes from `axis` on.
struct NormTypes {
  Type wide, low, row, statistic;
};

// Returns the types for input x; the inputs from `terms` on are the addends.
absl::StatusOr<NormTypes> FindNormTypes(const TypeContext& c, size_t x, size_t terms) {
  if (terms >= c.inputs.size() || !c.has(x)) return Invalid("expected a tensor to normalize, and terms");
  const Shape& shape = c.in(x).shape;
  const int64_t axis = c.attrs.Int("axis");
  if (axis < 0 || axis >= c.in(x).rank()) return Invalid("axis ", axis, " of ", ToString(c.in(x)));
  NormTypes t{.wide = {DType::kFloat32, shape}, .low = {DType::kBFloat16, shape}};
  t.row.shape = Shape(shape.begin() + axis, shape.end());
  t.statistic.shape = shape;
  std::fill(t.statistic.shape.begin() + axis, t.statistic.shape.end(), 1);
  if (t.row.elements() > kMaxNormRow) return Invalid("rows of more than ", kMaxNormRow, " elements");
  for (size_t i = terms; i < c.inputs.size(); ++i) {
    if (!c.has(i) || (c.in(i) != t.wide && c.in(i) != t.low))
      return Invalid("term ", i - terms, " is not f32 or bf16 of ", ToString(t.wide));
  }
  return t;
}

struct Expected {
  Type type;
  bool required = true, allowed = true;
};
const Type kKeyType = {DType::kUInt32, {4}};

absl::Status CheckInputs(const TypeContext& c, const std::vector<Expected>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (c.has(i) ? !expected[i].allowed : expected[i].required)
      return Invalid("input ", i, c.has(i) ? " is unexpected" : " is missing");
    if (c.has(i)) RETURN_IF_ERROR(CheckInputType(c, i, expected[i].type));
  }
  const double ratio = c.attrs.Float("ratio");
  return ratio >= 0 && ratio < 1 ? absl::OkStatus() : Invalid("ratio ", ratio, " is outside [0, 1)");
}

// Checks that the attribute is at least `least` and less than the number of terms, the inputs from `terms` on.
absl::Status CheckTermNumber(const TypeContext& c, std::string_view name, int64_t least, size_t terms) {
  const int64_t number = c.attrs.Int(name);
  const bool fits = number >= least && number < std::ssize(c.inputs) - static_cast<int64_t>(terms);
  return fits ? absl::OkStatus() : Invalid("there is no term ", number);
}

// Returns the types of the listed results. RMSNorm lacks `mean_result`.
template <typename Result>
TypesOr SelectTypes(const TypeContext& c, const Types& all, Result mean_result) {
  Types types;
  int64_t last = -1;
  for (int64_t result : c.attrs.Ints("results")) {
    const bool lacks = result == static_cast<int64_t>(mean_result) && !HasMean(c);
    if (result <= last || result >= std::ssize(all) || lacks) return Invalid("there is no result ", result);
    types.push_back(all[result]);
    last = result;
  }
  return types;
}

TypesOr InferNorm(const TypeContext& c) {
  ASSIGN_OR_RETURN(const NormTypes t, FindNormTypes(c, kNormTerms, kNormTerms));
  RETURN_IF_ERROR(CheckTermNumber(c, "dropped", -1, kNormTerms));
  const bool drops = c.attrs.Int("dropped") >= 0;
  RETURN_IF_ERROR(CheckInputs(c, {{t.row}, {t.row, false, HasMean(c)}, {kKeyType, drops, drops}}));
  return SelectTypes(c, {t.wide, t.wide, t.low, t.statistic, t.statistic}, NormResult::kMean);
}

TypesOr InferNormGrad(const TypeContext& c) {
  ASSIGN_OR_RETURN(const NormTypes t, FindNormTypes(c, kNormGradSum, kNormGradTerms));
  RETURN_IF_ERROR(CheckTermNumber(c, "more", 0, kNormGradTerms));
  RETURN_IF_ERROR(
      CheckInputs(c, {{t.row}, {t.statistic}, {t.statistic, HasMean(c), HasMean(c)}, {kKeyType, false}, {t.wide}}));
  return SelectTypes(c, {t.wide, t.low, t.row, t.wide, t.low, t.row, t.row, t.row}, NormGradResult::kBias);
}

OpRow NormRow(std::string_view name, TypeRule infer, AttrSpec of_terms, AttrSpec more = {}) {
  const int64_t zero = 0;
  OpRow row = {.name = name,
               .inputs = {1, Arity::kMany},
               .outputs = kOutputsFromAttr,
               .attrs = {{"axis", zero, true},
                         {"ratio", 0.0},
                         {"stream", zero},
                         {"results", std::vector<int64_t>(), true},
                         {"num_outputs", zero, true},
                         std::move(of_terms)},
               .infer = infer,
               .precision = Precision::kFloat32,
               .overwrites = kAnyInput};
  if (!more.name.empty()) row.attrs.push_back(std::move(more));
  return row;
}

}  // namespace

std::vector<OpRow> LayerNormRows() {
  const AttrSpec dropped = {"dropped", int64_t{-1}}, epsilon = {"epsilon", 1e-5}, more = {"more", int64_t{0}};
  return {NormRow("cpu.LayerNorm", InferNorm, dropped, epsilon), NormRow("cpu.LayerNormGrad", InferNormGrad, more),
          NormRow("cpu.RmsNorm", InferNorm, dropped, epsilon), NormRow("cpu.RmsNormGrad", InferNormGrad, more)};
}

}  // namespace onnxtrain::cpu
