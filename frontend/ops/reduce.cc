// Reductions over axes, ArgMax, ArgMin and CumSum.
#include <cmath>
#include <limits>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TypesOr ReduceTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  ASSIGN_OR_RETURN(const std::vector<bool> mask, AxesMask(c.attrs.Ints("axes"), c.in(0).rank()));
  return std::vector<Type>{{c.in(0).dtype, ReducedShape(c.in(0).shape, mask, c.attrs.Int("keepdims"))}};
}

// Fails for a reduction over no elements of an integer type, whose maximum is undefined.
TypesOr ExtremumTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(std::vector<Type> types, ReduceTypes(c));
  if (!IsFloat(c.in(0).dtype) && c.in(0).elements() == 0 && types[0].elements() > 0) {
    return Invalid("reduces nothing: ", ToString(c.in(0)));
  }
  return types;
}

TypesOr SquaredNormTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  return std::vector<Type>{{DType::kFloat64, {}}};
}

TypesOr ArgTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  std::vector<bool> mask(c.in(0).rank(), false);
  mask[axis] = true;
  Shape shape = ReducedShape(c.in(0).shape, mask, c.attrs.Int("keepdims"));
  if (c.in(0).shape[axis] == 0 && NumElements(shape) > 0)
    return Invalid("axis ", axis, " of ", ToString(c.in(0)), " is empty");
  return std::vector<Type>{{DType::kInt64, std::move(shape)}};
}

TypesOr CumSumTypes(const TypeContext& c) {
  RETURN_IF_ERROR(AxisAttr(c, c.in(0).rank()).status());
  return SameAsNumericInput(c);
}

// Reshapes the result of a reduction to broadcast against x, with extents 1 along the reduced axes.
Val Kept(const GradContext& c, Val reduced) {
  const std::vector<bool> mask = *AxesMask(c.node.attrs.Ints("axes"), c.x(0).rank());
  return Reshape(reduced, ReducedShape(c.x(0).shape(), mask, true));
}

std::vector<Val> SumGrad(const GradContext& c) { return {Expand(Kept(c, c.dy()), c.x(0).shape())}; }

std::vector<Val> MeanGrad(const GradContext& c) {
  const double count = static_cast<double>(c.x(0).type().elements()) / std::max<int64_t>(1, c.y().type().elements());
  return {Expand(Kept(c, c.dy() * (1 / count)), c.x(0).shape())};
}

// Passes dy/n to each of the n elements that equal the extremum.
std::vector<Val> ExtremumGrad(const GradContext& c) {
  const Val wins = Equal(c.x(0), Kept(c, c.y()));
  const Val n = ReduceSum(Cast(wins, c.x(0).dtype()), c.node.attrs.Ints("axes"));
  return {Masked(wins, Kept(c, c.dy()) / n)};
}

// The derivative is the product of the other elements. With p the product of all nonzero elements, it is p/x without
// zeros, p at a single zero, and 0 otherwise.
std::vector<Val> ProdGrad(const GradContext& c) {
  const std::vector<int64_t> axes = c.node.attrs.Ints("axes");
  const Val x = c.x(0), zero = Equal(x, 0), filled = Where(zero, Number(x, 1), x);
  const Val p = c.b.Op("ReduceProd", {filled}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  const Val zeros = ReduceSum(Cast(zero, x.dtype()), axes);
  const Val at_zero = Masked(Equal(zeros, 1), p), elsewhere = Masked(Equal(zeros, 0), p / filled);
  return {Kept(c, c.dy()) * Where(zero, at_zero, elsewhere)};
}

// Returns the cumulative sum of dy from the other end, since element j contributes to the sums of all i ≥ j.
std::vector<Val> CumSumGrad(const GradContext& c) {
  Attrs attrs = c.node.attrs;
  attrs.Set("reverse", int64_t{!attrs.Int("reverse")});
  return {c.b.Op("CumSum", {c.dy()}, std::move(attrs))};
}

std::vector<Val> SumOfWideSquares(const DecomposeContext& c) {
  const Val x = Cast(c.x(0), DType::kFloat64);
  return {ReduceSum(x * x, {}, false)};
}

// Returns the strides that map each element of x to the element of the result that it is reduced into.
Shape StridesInto(const Shape& x, const std::vector<bool>& mask) {
  const Shape kept = ReducedShape(x, mask, true);
  return BroadcastStrides(kept, x);
}

// Reduces x with T = double for float types, int64 for integers.
template <typename T, typename Add, typename Read>
std::vector<T> Accumulate(const EvalContext& c, T init, Add add, Read read) {
  const Shape& shape = c.inputs[0]->shape();
  const std::vector<bool> mask = *AxesMask(c.attrs.Ints("axes"), static_cast<int>(shape.size()));
  std::vector<T> sums(c.output_types[0].elements(), init);
  Walk<1>(shape, {StridesInto(shape, mask)}, {0},
          [&](int64_t i, const std::array<int64_t, 1>& at) { sums[at[0]] = add(sums[at[0]], read(i)); });
  return sums;
}

template <typename Add, typename IntAdd>
std::vector<HostTensor> Reduced(const EvalContext& c, double init, Add add, int64_t int_init, IntAdd int_add,
                                bool mean) {
  const HostTensor& x = *c.inputs[0];
  const Type& type = c.output_types[0];
  const int64_t count = mean && type.elements() > 0 ? x.size() / type.elements() : 1;
  if (!IsFloat(x.dtype())) {
    auto sums = Accumulate(c, int_init, int_add, [&](int64_t i) { return x.IntAt(i); });
    for (int64_t& s : sums) s = count == 1 ? s : SafeDiv(s, count);
    return {HostTensor::FromInts(type, sums)};
  }
  auto sums = Accumulate(c, init, add, [&](int64_t i) { return x.At(i); });
  for (double& s : sums) s /= static_cast<double>(count);
  return {HostTensor::FromDoubles(type, sums)};
}

template <bool kMean>
std::vector<HostTensor> EvalSum(const EvalContext& c) {
  return Reduced(c, 0, std::plus<double>(), 0, WrapAdd, kMean);
}
std::vector<HostTensor> EvalProd(const EvalContext& c) {
  return Reduced(c, 1, std::multiplies<double>(), 1, WrapMul, false);
}
std::vector<HostTensor> EvalMax(const EvalContext& c) {
  return Reduced(
      c, -kInfinity, [](double a, double b) { return std::isnan(a) || a > b ? a : b; },
      std::numeric_limits<int64_t>::min(), [](int64_t a, int64_t b) { return std::max(a, b); }, false);
}
std::vector<HostTensor> EvalMin(const EvalContext& c) {
  return Reduced(
      c, kInfinity, [](double a, double b) { return std::isnan(a) || a < b ? a : b; },
      std::numeric_limits<int64_t>::max(), [](int64_t a, int64_t b) { return std::min(a, b); }, false);
}

// Calls f(first, step) for each line of x along `axis`, with the offset of the first element and the stride.
template <typename F>
void ForEachLine(const Shape& shape, int64_t axis, F f) {
  if (NumElements(shape) == 0) return;  // there may be 2^39 empty lines
  const Shape strides = Strides(shape);
  Shape rest = shape;
  rest[axis] = 1;
  Walk<1>(rest, {strides}, {0}, [&](int64_t line, const std::array<int64_t, 1>& at) { f(line, at[0], strides[axis]); });
}

template <bool kMax>
std::vector<HostTensor> EvalArg(const EvalContext& c) {
  const HostTensor& x = *c.inputs[0];
  const int64_t axis = c.attrs.Int("axis");
  const bool last = c.attrs.Int("select_last_index"), floats = IsFloat(x.dtype());
  HostTensor y(c.output_types[0]);
  auto compare = [&](int64_t i, int64_t j) {  // > 0 if element i precedes element j
    const int sign = kMax ? 1 : -1;
    if (floats) return sign * ((x.At(i) > x.At(j)) - (x.At(i) < x.At(j)));
    return sign * ((x.IntAt(i) > x.IntAt(j)) - (x.IntAt(i) < x.IntAt(j)));
  };
  ForEachLine(x.shape(), axis, [&](int64_t line, int64_t first, int64_t step) {
    int64_t best = 0;
    for (int64_t i = 1; i < x.shape()[axis]; ++i) {
      const int order = compare(first + i * step, first + best * step);
      if (order > 0 || (last && order == 0)) best = i;
    }
    y.SetInt(line, best);
  });
  return {std::move(y)};
}

std::vector<HostTensor> EvalSquaredNorm(const EvalContext& c) {
  const HostTensor& x = *c.inputs[0];
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += x.At(i) * x.At(i);
  HostTensor y(c.output_types[0]);
  y.Set(0, sum);
  return {std::move(y)};
}

std::vector<HostTensor> EvalCumSum(const EvalContext& c) {
  const HostTensor& x = *c.inputs[0];
  const bool exclusive = c.attrs.Int("exclusive"), reverse = c.attrs.Int("reverse");
  const int64_t axis = c.attrs.Int("axis");
  HostTensor y(c.output_types[0]);
  ForEachLine(x.shape(), axis, [&](int64_t line, int64_t first, int64_t step) {
    double sum = 0;
    int64_t int_sum = 0;
    const int64_t n = x.shape()[axis];
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = first + (reverse ? n - 1 - k : k) * step;
      const double before = sum;
      const int64_t int_before = int_sum;
      sum += x.At(at);
      int_sum = WrapAdd(int_sum, x.IntAt(at));
      if (IsFloat(x.dtype())) {
        y.Set(at, exclusive ? before : sum);
      } else {
        y.SetInt(at, exclusive ? int_before : int_sum);
      }
    }
  });
  return {std::move(y)};
}

double OnePerInput(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  return static_cast<double>(inputs[0]->elements());
}

double TwoPerInput(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  return 2 * OnePerInput(inputs, outputs, attrs);
}

OpRow Reduction(std::string_view name, TypeRule infer, Evaluate evaluate, Gradient gradient) {
  return {.name = name,
          .attrs = {{"axes", std::vector<int64_t>{}, false, AxisRole::kAxisSet}, {"keepdims", int64_t{1}}},
          .infer = infer,
          .grad_status = GradStatus::kFormula,
          .gradient = gradient,
          .evaluate = evaluate,
          .precision = Precision::kFloat32,
          .flops = OnePerInput,
          .layout = {.inputs = 1, .outputs = 1, .any_order = true},
          .reduction = true,
          .emit = EmitReduce,
          .simplify = SimplifyReduce};
}

OpRow ArgRow(std::string_view name, Evaluate evaluate) {
  return {.name = name,
          .attrs = {{"axis", int64_t{0}}, {"keepdims", int64_t{1}}, {"select_last_index", int64_t{0}}},
          .infer = ArgTypes,
          .grad_status = GradStatus::kZero,
          .evaluate = evaluate,
          .flops = OnePerInput,
          .emit = EmitSame,
          .simplify = SimplifyArg};
}

}  // namespace

std::span<const OpRow> ReduceOps() {
  static const auto* rows = new std::vector<OpRow>{
      Reduction("ReduceSum", ReduceTypes, EvalSum<false>, SumGrad),
      Reduction("ReduceMean", ReduceTypes, EvalSum<true>, MeanGrad),
      Reduction("ReduceMax", ExtremumTypes, EvalMax, ExtremumGrad),
      Reduction("ReduceMin", ExtremumTypes, EvalMin, ExtremumGrad),
      Reduction("ReduceProd", ReduceTypes, EvalProd, ProdGrad),
      ArgRow("ArgMax", EvalArg<true>),
      ArgRow("ArgMin", EvalArg<false>),
      {.name = "CumSum",
       .attrs = {{"axis", int64_t{0}}, {"exclusive", int64_t{0}}, {"reverse", int64_t{0}}},
       .infer = CumSumTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = CumSumGrad,
       .evaluate = EvalCumSum,
       .precision = Precision::kFloat32,
       .emit = EmitCumSum},
      {.name = "SquaredNorm",
       .infer = SquaredNormTypes,
       .grad_status = GradStatus::kDecomposition,
       .decompose = SumOfWideSquares,
       .evaluate = EvalSquaredNorm,
       .precision = Precision::kFloat32,
       .flops = TwoPerInput},
  };
  return *rows;
}

}  // namespace onnxtrain
