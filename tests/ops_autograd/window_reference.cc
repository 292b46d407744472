// Convolutions and poolings. Pads are always made explicitly here: none is left to libtorch's kernels.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "reference.h"
#include "vjp.h"

namespace onnxtrain::cases {
namespace {

using Sizes = std::vector<int64_t>;

Sizes Filled(const Attrs& a, int64_t value) { return Sizes(a.Ints("strides").size(), value); }

at::Tensor Padded(const at::Tensor& x, const Attrs& a, double value) {
  const Sizes pads = a.Ints("pads");
  Sizes list;
  for (size_t i = pads.size() / 2; i-- > 0;) list.insert(list.end(), {pads[i], pads[pads.size() / 2 + i]});
  return at::constant_pad_nd(x, list, value);
}

at::Tensor Conv(const at::Tensor& x, const at::Tensor& w, const Attrs& a) {
  return at::convolution(Padded(x, a, 0), w, {}, a.Ints("strides"), Filled(a, 0), a.Ints("dilations"), false,
                         Filled(a, 0), a.Int("group", 1));
}

TensorVector ConvWithBias(const Operands& a) {
  at::Tensor y = Conv(a[0], a[1], a.attrs());
  if (!a[2].defined()) return {y};
  Sizes shape(y.dim(), 1);
  shape[1] = y.size(1);
  return {y + a[2].view(shape)};
}

// The convolution is linear in x and in w: these are its adjoints, and autograd differentiates them again.
TensorVector ConvTranspose(const Operands& a) {
  Sizes shape = {a[0].size(0), a[1].size(1) * a.attrs().Int("group", 1)};
  for (int64_t extent : a.attrs().Ints("output_shape")) shape.push_back(extent);
  return {Vjp([&](const at::Tensor& x) { return Conv(x, a[1], a.attrs()); }, at::zeros(shape, a[0].options()), a[0])};
}

TensorVector ConvWeightGrad(const Operands& a) {
  Sizes shape = {a[1].size(1), a[0].size(1) / a.attrs().Int("group", 1)};
  for (int64_t extent : a.attrs().Ints("kernel_shape")) shape.push_back(extent);
  return {Vjp([&](const at::Tensor& w) { return Conv(a[0], w, a.attrs()); }, at::zeros(shape, a[0].options()), a[1])};
}

TensorVector MaxPool(const Operands& a) {
  const Attrs& attrs = a.attrs();
  const at::Tensor x = Padded(a[0], attrs, -1e300);
  const auto pool = a[0].dim() == 3 ? at::max_pool1d : a[0].dim() == 4 ? at::max_pool2d : at::max_pool3d;
  return {pool(x, attrs.Ints("kernel_shape"), attrs.Ints("strides"), Filled(attrs, 0), attrs.Ints("dilations"), false)};
}

// Sums of windows, divided by how many of their elements count.
at::Tensor AveragePool(const at::Tensor& x, const Attrs& a) {
  Sizes weight = a.Ints("kernel_shape");
  weight.insert(weight.begin(), {x.size(1), 1});
  const at::Tensor w = at::ones(weight, x.options());
  auto sums = [&](const at::Tensor& padded) {
    return at::convolution(padded, w, {}, a.Ints("strides"), Filled(a, 0), a.Ints("dilations"), false, Filled(a, 0),
                           x.size(1));
  };
  const at::Tensor counted = at::ones(x.sizes(), x.options());
  return sums(Padded(x, a, 0)) / sums(Padded(counted, a, a.Int("count_include_pad") ? 1 : 0));
}

TensorVector AveragePoolGrad(const Operands& a) {
  const at::Tensor x = at::zeros(a.attrs().Ints("input_shape"), a[0].options());
  return {Vjp([&](const at::Tensor& v) { return AveragePool(v, a.attrs()); }, x, a[0])};
}

}  // namespace

References WindowReferences() {
  return {
      {"Conv", ConvWithBias},
      {"ConvTranspose", ConvTranspose},
      {"ConvWeightGrad", ConvWeightGrad},
      {"MaxPool", MaxPool},
      {"AveragePool", [](const Operands& a) { return TensorVector{AveragePool(a[0], a.attrs())}; }},
      {"AveragePoolGrad", AveragePoolGrad},
  };
}

}  // namespace onnxtrain::cases
