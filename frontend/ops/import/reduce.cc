#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

// The axes of an ONNX reduction.
struct Reduction {
  Val x;
  std::vector<int64_t> axes;
  bool keepdims = true;
  bool nothing = false;  // noop_with_empty_axes: skips the reduction, but not the operations before and after it

  Val operator()(std::string_view op, Val v) const {
    if (nothing || !v.valid()) return v;
    return v.b().Op(op, {v}, {{"axes", axes}, {"keepdims", int64_t{keepdims}}});
  }
  // Reduces v with keepdims, so that the result broadcasts against x.
  Val Kept(std::string_view op, Val v) const { return Reduction{x, axes, true, nothing}(op, v); }
};

// Reads the axes: an input since opset 13 for ReduceSum, since 18 for the others, and an attribute before.
absl::StatusOr<Reduction> ReadReduction(ImportContext& c) {
  Reduction r{c.in(0)};
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.IntsFromAttrOrInput("axes", 1, {}));
  ASSIGN_OR_RETURN(r.axes, NormalizeAxes(std::move(axes), r.x.rank()));
  r.keepdims = c.attrs().Int("keepdims", 1);
  r.nothing = r.axes.empty() && c.attrs().Int("noop_with_empty_axes");
  return r;
}

// Reads a reduction with roots, logarithms or fractions, for which integers become float64. The caller casts the result
// back.
absl::StatusOr<Reduction> ReadFloatReduction(ImportContext& c) {
  ASSIGN_OR_RETURN(Reduction r, ReadReduction(c));
  if (IsInteger(r.x.dtype())) r.x = Cast(r.x, DType::kFloat64);
  return r;
}

ImportOr ImportReduce(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadReduction(c));
  if (r.x.dtype() == DType::kBool) {  // since opset 20, Max and Min of bools are "any" and "all"
    return One(Cast(r(c.node().op_type, Cast(r.x, DType::kInt32)), DType::kBool));
  }
  return One(r(c.node().op_type, r.x));
}

ImportOr ImportReduceMean(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadFloatReduction(c));
  return One(Cast(r("ReduceMean", r.x), c.in(0).dtype()));
}

ImportOr ImportReduceL1(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadReduction(c));
  return One(r("ReduceSum", Unary("Abs", r.x)));
}

ImportOr ImportReduceSumSquare(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadReduction(c));
  return One(r("ReduceSum", r.x * r.x));
}

// Imports √Σx². The gradient at 0 is 0: the square root is not applied to 0, where its derivative is infinite.
ImportOr ImportReduceL2(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadFloatReduction(c));
  const Val sum = r("ReduceSum", r.x * r.x), zero = Equal(sum, 0);
  return One(Cast(Where(zero, Number(sum, 0), Sqrt(Where(zero, Number(sum, 1), sum))), c.in(0).dtype()));
}

ImportOr ImportReduceLogSum(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadFloatReduction(c));
  return One(Cast(Log(r("ReduceSum", r.x)), c.in(0).dtype()));
}

// Imports m + ln Σ exp(x − m), where m is the largest x, or 0 if that is infinite.
ImportOr ImportReduceLogSumExp(ImportContext& c) {
  ASSIGN_OR_RETURN(const Reduction r, ReadFloatReduction(c));
  if (r.nothing) return One(c.in(0));
  const Val largest = r.Kept("ReduceMax", r.x), m = Where(Unary("IsInf", largest), Number(largest, 0), largest);
  const Val y = Log(r.Kept("ReduceSum", Exp(r.x - m))) + m;
  if (r.keepdims || !y.valid()) return One(Cast(y, c.in(0).dtype()));
  Shape shape;
  for (int64_t i = 0; i < r.x.rank(); ++i) {
    const bool reduced = r.axes.empty() || std::find(r.axes.begin(), r.axes.end(), i) != r.axes.end();
    if (!reduced) shape.push_back(r.x.dim(static_cast<int>(i)));
  }
  return One(Cast(Reshape(y, std::move(shape)), c.in(0).dtype()));
}

ImportOr ImportArg(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 0, c.in(0).rank()));
  return One(c.b().Op(c.node().op_type, {c.in(0)},
                      {{"axis", axis},
                       {"keepdims", c.attrs().Int("keepdims", 1)},
                       {"select_last_index", c.attrs().Int("select_last_index")}}));
}

ImportOr ImportCumSum(ImportContext& c) {
  ASSIGN_OR_RETURN(int64_t axis, KnownInt(c, 1, "axis"));
  ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.in(0).rank()));
  return One(
      c.b().Op("CumSum", {c.in(0)},
               {{"axis", axis}, {"exclusive", c.attrs().Int("exclusive")}, {"reverse", c.attrs().Int("reverse")}}));
}

}  // namespace

std::span<const OnnxOp> ReduceImports() {
  static const OnnxOp ops[] = {
      {"", "ReduceSum", 1, 2, ImportReduce},
      {"", "ReduceMean", 1, 2, ImportReduceMean, {.keeps_channels = true}},
      {"", "ReduceMax", 1, 2, ImportReduce, {.keeps_channels = true, .extreme = true}},
      {"", "ReduceMin", 1, 2, ImportReduce, {.reversed_inputs = 1, .extreme = true}},
      {"", "ReduceProd", 1, 2, ImportReduce},
      {"", "ReduceL1", 1, 2, ImportReduceL1},
      {"", "ReduceL2", 1, 2, ImportReduceL2},
      {"", "ReduceLogSum", 1, 2, ImportReduceLogSum},
      {"", "ReduceLogSumExp", 1, 2, ImportReduceLogSumExp},
      {"", "ReduceSumSquare", 1, 2, ImportReduceSumSquare},
      {"", "ArgMax", 1, 1, ImportArg},
      {"", "ArgMin", 1, 1, ImportArg, {.reversed_inputs = 1}},
      {"", "CumSum", 2, 2, ImportCumSum},
  };
  return ops;
}

}  // namespace onnxtrain
