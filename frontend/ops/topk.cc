// TopK.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

TypesOr TopKTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  ASSIGN_OR_RETURN(const int64_t axis, AxisAttr(c, c.in(0).rank()));
  const int64_t k = c.attrs.Int("k");
  Shape shape = c.in(0).shape;
  if (k < 0 || k > shape[axis]) return Invalid("k = ", k, " of an axis of ", shape[axis], " elements");
  shape[axis] = k;
  return std::vector<Type>{{c.in(0).dtype, shape}, {DType::kInt64, shape}};
}

// Scatters the gradient of each value to its source.
std::vector<Val> TopKGrad(const GradContext& c) {
  if (!c.dy().valid()) return {Val()};
  return {c.b.Op("GatherElementsGrad", {c.dy(), c.y(1)},
                 {{"axis", c.node.attrs.Int("axis")}, {"input_shape", c.x(0).shape()}})};
}

// Does element i come before element j, by value alone? A NaN is more than any number.
bool Before(const HostTensor& x, int64_t i, int64_t j, bool largest) {
  if (!largest) std::swap(i, j);
  if (!IsFloat(x.dtype())) {
    const int64_t a = x.IntAt(i), b = x.IntAt(j);
    return x.dtype() == DType::kUInt64 ? static_cast<uint64_t>(a) > static_cast<uint64_t>(b) : a > b;
  }
  const double a = x.At(i), b = x.At(j);
  return std::isnan(a) ? !std::isnan(b) : a > b;
}

std::vector<HostTensor> EvalTopK(const EvalContext& c) {
  const HostTensor& x = *c.inputs[0];
  const int64_t axis = c.attrs.Int("axis"), k = c.attrs.Int("k"), n = x.shape()[axis];
  const bool largest = c.attrs.Int("largest");
  HostTensor values(c.output_types[0]), places(c.output_types[1]);
  if (values.size() == 0) return {std::move(values), std::move(places)};
  const Shape from = Strides(x.shape()), to = Strides(values.shape());
  Shape lines = x.shape();
  lines[axis] = 1;
  std::vector<int64_t> order(n);
  Walk<2>(lines, {from, to}, {0, 0}, [&](int64_t, const std::array<int64_t, 2>& at) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return Before(x, at[0] + i * from[axis], at[0] + j * from[axis], largest);
    });
    for (int64_t i = 0; i < k; ++i) {
      CopyElement(x, at[0] + order[i] * from[axis], &values, at[1] + i * to[axis]);
      places.SetInt(at[1] + i * to[axis], order[i]);
    }
  });
  return {std::move(values), std::move(places)};
}

double LogPerElement(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const double k = static_cast<double>(attrs.Int("k"));
  return static_cast<double>(inputs[0]->elements()) * std::log2(k + 2);
}

}  // namespace

std::span<const OpRow> TopKOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "TopK",
       .outputs = 2,
       .attrs = {{"axis", int64_t{0}}, {"k", int64_t{1}, true}, {"largest", int64_t{1}}},
       .infer = TopKTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = TopKGrad,
       .evaluate = EvalTopK,
       .recompute = Recompute::kExpensive,
       .flops = LogPerElement,
       .emit = EmitTopK},
  };
  return *rows;
}

}  // namespace onnxtrain
