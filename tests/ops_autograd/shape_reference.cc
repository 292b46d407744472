// Reductions, and what moves elements.
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "reference.h"
#include "vjp.h"

namespace onnxtrain::cases {
namespace {

using Sizes = std::vector<int64_t>;

Sizes Axes(const Operands& a) {
  Sizes axes = a.attrs().Ints("axes");
  if (axes.empty()) {
    axes.resize(a[0].dim());
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

bool Keep(const Operands& a) { return a.attrs().Int("keepdims", 1) != 0; }

TensorVector Prod(const Operands& a) {
  at::Tensor y = a[0];
  const Sizes axes = Axes(a);
  for (size_t i = axes.size(); i-- > 0;) y = at::prod(y, axes[i], Keep(a));
  return {y};
}

TensorVector CumSum(const Operands& a) {
  const int64_t axis = a.attrs().Int("axis");
  const bool reverse = a.attrs().Int("reverse") != 0;
  const at::Tensor x = reverse ? a[0].flip({axis}) : a[0];
  at::Tensor y = x.cumsum(axis);
  if (a.attrs().Int("exclusive")) y = y - x;
  return {reverse ? y.flip({axis}) : y};
}

// y[i] = x[start + i·step] by index, axis by axis.
at::Tensor Sliced(at::Tensor x, const Sizes& starts, const Sizes& sizes, const Sizes& steps) {
  for (size_t axis = 0; axis < starts.size(); ++axis) {
    at::Tensor index = at::zeros({sizes[axis]}, at::kLong);
    for (int64_t i = 0; i < sizes[axis]; ++i) index[i] = starts[axis] + i * steps[axis];
    x = x.index_select(static_cast<int64_t>(axis), index);
  }
  return x;
}

TensorVector Slice(const Operands& a) {
  return {Sliced(a[0], a.attrs().Ints("starts"), a.attrs().Ints("sizes"), a.attrs().Ints("steps"))};
}

TensorVector SliceGrad(const Operands& a) {
  auto slice = [&](const at::Tensor& x) {
    return Sliced(x, a.attrs().Ints("starts"), a[0].sizes().vec(), a.attrs().Ints("steps"));
  };
  return {Vjp(slice, at::zeros(a.attrs().Ints("input_shape"), a[0].options()), a[0])};
}

TensorVector Pad(const Operands& a) {
  const Sizes pads = a.attrs().Ints("pads");
  Sizes list;
  for (size_t i = pads.size() / 2; i-- > 0;) list.insert(list.end(), {pads[i], pads[pads.size() / 2 + i]});
  return {at::constant_pad_nd(a[0], list, a.attrs().Float("value"))};
}

TensorVector Split(const Operands& a) { return a[0].split_with_sizes(a.attrs().Ints("sizes"), a.attrs().Int("axis")); }

at::Tensor Clamped(const at::Tensor& index, int64_t n) {
  return at::where(index.lt(0), index + n, index).clamp(0, n - 1);
}

at::Tensor Gathered(const at::Tensor& x, const at::Tensor& index, int64_t axis) {
  Sizes sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + axis);
  sizes.insert(sizes.begin() + axis, index.sizes().begin(), index.sizes().end());
  return x.index_select(axis, Clamped(index, x.size(axis)).flatten()).reshape(sizes);
}

at::Tensor GatheredElements(const at::Tensor& x, const at::Tensor& index, int64_t axis) {
  return x.gather(axis, Clamped(index, x.size(axis)));
}

template <auto F>
TensorVector Forward(const Operands& a) {
  return {F(a[0], a[1], a.attrs().Int("axis"))};
}

template <auto F>
TensorVector Backward(const Operands& a) {
  const at::Tensor x = at::zeros(a.attrs().Ints("input_shape"), a[0].options());
  return {Vjp([&](const at::Tensor& v) { return F(v, a[1], a.attrs().Int("axis")); }, x, a[0])};
}

}  // namespace

References ShapeReferences() {
  return {
      {"ReduceSum", [](const Operands& a) { return TensorVector{a[0].sum(Axes(a), Keep(a))}; }},
      {"ReduceMean", [](const Operands& a) { return TensorVector{a[0].mean(Axes(a), Keep(a))}; }},
      {"ReduceMax", [](const Operands& a) { return TensorVector{a[0].amax(Axes(a), Keep(a))}; }},
      {"ReduceMin", [](const Operands& a) { return TensorVector{a[0].amin(Axes(a), Keep(a))}; }},
      {"ReduceProd", Prod},
      {"SquaredNorm", [](const Operands& a) { return TensorVector{a[0].to(at::kDouble).square().sum()}; }},
      {"CumSum", CumSum},
      {"Reshape", [](const Operands& a) { return TensorVector{a[0].reshape(a.attrs().Ints("shape"))}; }},
      {"Transpose", [](const Operands& a) { return TensorVector{a[0].permute(a.attrs().Ints("perm"))}; }},
      {"Expand", [](const Operands& a) { return TensorVector{a[0].expand(a.attrs().Ints("shape"))}; }},
      {"Concat", [](const Operands& a) { return TensorVector{at::cat(a.x, a.attrs().Int("axis"))}; }},
      {"Split", Split},
      {"Slice", Slice},
      {"SliceGrad", SliceGrad},
      {"Pad", Pad},
      {"Gather", Forward<Gathered>},
      {"GatherGrad", Backward<Gathered>},
      {"GatherElements", Forward<GatheredElements>},
      {"GatherElementsGrad", Backward<GatheredElements>},
  };
}

}  // namespace onnxtrain::cases
