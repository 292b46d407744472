// Softmax and LogSoftmax are primitives, since a composition of simpler operators is less stable or needs more passes.
// Their backward rows read only the output.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

absl::StatusOr<std::vector<Type>> InferSoftmax(const TypeContext& c) {
  RETURN_IF_ERROR(CheckFloats(c, 1));
  RETURN_IF_ERROR(CheckAxis(c));
  return std::vector<Type>{c.in(0)};
}

absl::StatusOr<std::vector<Type>> InferSoftmaxGrad(const TypeContext& c) {
  RETURN_IF_ERROR(CheckInputType(c, 1, c.in(0)));
  return InferSoftmax(c);
}

std::vector<Val> SoftmaxGradient(const GradContext& c) {
  return {c.b.Op("SoftmaxGrad", {c.dy(), c.y()}, {{"axis", c.node.attrs.Int("axis")}})};
}

std::vector<Val> LogSoftmaxGradient(const GradContext& c) {
  return {c.b.Op("LogSoftmaxGrad", {c.dy(), c.y()}, {{"axis", c.node.attrs.Int("axis")}})};
}

std::vector<Val> DecomposeSoftmaxGrad(const DecomposeContext& c) {
  const Val dy = c.x(0), y = c.x(1);
  return {y * (dy - ReduceSum(dy * y, {c.attrs.Int("axis")}))};
}

std::vector<Val> DecomposeLogSoftmaxGrad(const DecomposeContext& c) {
  const Val dy = c.x(0), y = c.x(1);
  return {dy - Exp(y) * ReduceSum(dy, {c.attrs.Int("axis")})};
}

// Calls f(first, step) for every line of elements along `axis`.
template <typename F>
void ForEachLine(const Shape& shape, int64_t axis, F&& f) {
  if (NumElements(shape) == 0) return;
  const int64_t step = Strides(shape)[axis], block = step * shape[axis];
  for (int64_t start = 0, n = NumElements(shape); start < n; start += block) {
    for (int64_t i = 0; i < step; ++i) f(start + i, step);
  }
}

std::vector<HostTensor> EvaluateBoth(const EvalContext& c, bool log) {
  const HostTensor& x = *c.inputs[0];
  HostTensor y(c.output_types[0]);
  const int64_t axis = c.attrs.Int("axis"), n = x.shape()[axis];
  ForEachLine(x.shape(), axis, [&](int64_t first, int64_t step) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < n; ++i) max = std::max(max, x.At(first + i * step));
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x.At(first + i * step) - max);
    for (int64_t i = 0; i < n; ++i) {
      const double shifted = x.At(first + i * step) - max;
      y.Set(first + i * step, log ? shifted - std::log(sum) : std::exp(shifted) / sum);
    }
  });
  return {y};
}

std::vector<HostTensor> EvaluateSoftmax(const EvalContext& c) { return EvaluateBoth(c, false); }
std::vector<HostTensor> EvaluateLogSoftmax(const EvalContext& c) { return EvaluateBoth(c, true); }

}  // namespace

std::span<const OpRow> SoftmaxOps() {
  const AttrSpec axis = {"axis", int64_t{0}, true};
  static const std::vector<OpRow> rows = {
      {.name = "Softmax",
       .inputs = {1, 1},
       .attrs = {axis},
       .infer = InferSoftmax,
       .grad_status = GradStatus::kFormula,
       .gradient = SoftmaxGradient,
       .evaluate = EvaluateSoftmax,
       .precision = Precision::kFloat32,
       .non_negative = NonNegative::kAlways,
       .probabilities = true,
       .init = {.gain = XavierGain},
       .emit = EmitSame},
      {.name = "LogSoftmax",
       .inputs = {1, 1},
       .attrs = {axis},
       .infer = InferSoftmax,
       .grad_status = GradStatus::kFormula,
       .gradient = LogSoftmaxGradient,
       .evaluate = EvaluateLogSoftmax,
       .precision = Precision::kFloat32,
       .probabilities = true,
       .init = {.gain = XavierGain},
       .emit = EmitSame},
      {.name = "SoftmaxGrad",
       .inputs = {2, 2},
       .attrs = {axis},
       .infer = InferSoftmaxGrad,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeSoftmaxGrad,
       .precision = Precision::kFloat32,
       .is_gradient = true},
      {.name = "LogSoftmaxGrad",
       .inputs = {2, 2},
       .attrs = {axis},
       .infer = InferSoftmaxGrad,
       .grad_status = GradStatus::kDecomposition,
       .decompose = DecomposeLogSoftmaxGrad,
       .precision = Precision::kFloat32,
       .is_gradient = true},
  };
  return rows;
}

}  // namespace onnxtrain
