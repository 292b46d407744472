// Poolings over two or three spatial axes; a single axis gets a second one of extent 1. ATen supports equal pads of at
// most half a kernel; for other pads, the input is padded first.
#include <algorithm>
#include <limits>

#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/zeros_like.h>

#include "backends/torch/compat.h"
#include "backends/torch/kernels/window.h"
#include "backends/torch/tensor.h"

namespace onnxtrain::aten {
namespace {

// Adds a leading spatial axis of extent 1 if there is only one.
at::Tensor Spatial2(const at::Tensor& x) { return x.dim() == 3 ? x.unsqueeze(2) : x; }

Window MakePoolWindow(const Args& a) {
  Window w = MakeWindow(a.attrs(), a.attrs().Ints("kernel_shape"));
  if (w.rank() > 1) return w;
  for (auto* ones : {&w.kernel, &w.strides, &w.dilations}) ones->insert(ones->begin(), 1);
  for (auto* zeros : {&w.begin, &w.end}) zeros->insert(zeros->begin(), 0);
  return w;
}

bool FitsATen(const Window& w) {
  for (size_t i = 0; i < w.rank(); ++i) {
    if (w.begin[i] != w.end[i] || 2 * w.begin[i] > w.kernel[i]) return false;
  }
  return true;
}

std::vector<int64_t> PadsFor(const Window& w) { return FitsATen(w) ? w.begin : std::vector<int64_t>(w.rank(), 0); }

// Copies volumes if y is not row-major, because libtorch 1.13 would write y and index as if they were.
void MaxPoolOut(at::Tensor& y, at::Tensor& index, const at::Tensor& x, const Window& w, at::IntArrayRef pads) {
  if (w.rank() == 2) {
    at::max_pool2d_with_indices_out(y, index, x, w.kernel, w.strides, pads, w.dilations, false);
  } else if (!y.is_contiguous()) {
    const auto [maxima, positions] = at::max_pool3d_with_indices(x, w.kernel, w.strides, pads, w.dilations, false);
    y.copy_(maxima);
    index.copy_(positions);
  } else {
    at::max_pool3d_with_indices_out(y, index, x, w.kernel, w.strides, pads, w.dilations, false);
  }
}

// Converts offsets in the padded plane to offsets in the plane. Offsets of pads, from windows of only pads or -inf,
// become those of the nearest element.
void TranslateIndex(at::Tensor& index, const Window& w, at::IntArrayRef spatial) {
  at::Tensor rest = index.clone(), result = at::zeros_like(index);
  int64_t stride = 1;
  for (size_t i = w.rank(); i-- > 0;) {
    const int64_t padded = spatial[i] + w.begin[i] + w.end[i];
    result.add_(rest.remainder(padded).sub_(w.begin[i]).clamp_(0, spatial[i] - 1), stride);
    rest = rest.floor_divide(padded);
    stride *= spatial[i];
  }
  index.copy_(result);
}

Run MaxPool(const Args& a) {
  const Window w = MakePoolWindow(a);
  const at::Tensor x = Spatial2(a.in[0]);
  const std::vector<int64_t> spatial = x.sizes().slice(2).vec();
  const bool fits = FitsATen(w), index_read = a.out[1].defined();
  return [=, y = Spatial2(a.Out(0)), index = Spatial2(a.Out(1)), pads = PadsFor(w)]() mutable {
    MaxPoolOut(y, index, fits ? x : Padded(x, w, -std::numeric_limits<double>::infinity()), w, pads);
    if (!fits && index_read) TranslateIndex(index, w, spatial);
  };
}

Run MaxPoolGrad(const Args& a) {
  const at::Tensor dx = a.out[0].flatten(2), dy = a.in[0].flatten(2), index = a.in[1].flatten(2);
  return [=] {
    dx.zero_();
    dx.scatter_add_(2, index, dy);
  };
}

// Sums over windows, and their gradient: ATen's average pooling with divisor 1 or, for dilated windows, a convolution
// of each plane with ones.
struct SumPool {
  Window window;
  std::vector<int64_t> pads;  // pads that ATen adds
  bool padded;                // true: Padded adds the pads first
  at::Tensor ones;            // [1,1,kernel…] for dilated windows

  at::Tensor Planes(const at::Tensor& x) const {
    std::vector<int64_t> sizes = x.sizes().slice(2).vec();
    sizes.insert(sizes.begin(), {x.size(0) * x.size(1), 1});
    return x.reshape(sizes);
  }

  at::Tensor Forward(const at::Tensor& x) const {
    const at::Tensor in = padded ? Padded(x, window, 0) : x;
    if (ones.defined()) {
      return at::convolution(Planes(in), ones, {}, window.strides, pads, window.dilations, false,
                             std::vector<int64_t>(window.rank(), 0), 1);
    }
    return window.rank() == 2 ? at::avg_pool2d(in, window.kernel, window.strides, pads, false, true, 1)
                              : at::avg_pool3d(in, window.kernel, window.strides, pads, false, true, 1);
  }

  // Returns the gradient of x; `like` has its shape.
  at::Tensor Backward(const at::Tensor& dy, const at::Tensor& like) const {
    const at::Tensor in = padded ? at::empty(PaddedSizes(like), like.options()) : like;
    const at::Tensor full = Spread(dy, in);
    return padded ? Unpadded(full, window, like.sizes().slice(2)) : full;
  }

 private:
  std::vector<int64_t> PaddedSizes(const at::Tensor& x) const {
    std::vector<int64_t> sizes = x.sizes().vec();
    for (size_t i = 0; i < window.rank(); ++i) sizes[2 + i] += window.begin[i] + window.end[i];
    return sizes;
  }

  at::Tensor Spread(const at::Tensor& dy, const at::Tensor& in) const {
    if (ones.defined()) {
      return std::get<0>(at::convolution_backward(Planes(dy), Planes(in), ones, at::nullopt, window.strides, pads,
                                                  window.dilations, false, std::vector<int64_t>(window.rank(), 0), 1,
                                                  {true, false, false}))
          .view(in.sizes());
    }
    return window.rank() == 2 ? at::avg_pool2d_backward(dy, in, window.kernel, window.strides, pads, false, true, 1)
                              : at::avg_pool3d_backward(dy, in, window.kernel, window.strides, pads, false, true, 1);
  }
};

SumPool MakeSumPool(const Window& w, const at::TensorOptions& options) {
  SumPool pool{w, PadsFor(w), !FitsATen(w), {}};
  if (!w.dilated()) return pool;
  std::vector<int64_t> sizes = w.kernel;
  sizes.insert(sizes.begin(), {1, 1});
  pool.ones = at::ones(sizes, options);
  return pool;
}

// Returns how many elements each window averages along one axis.
std::vector<double> CountsAlong(const Window& w, size_t axis, int64_t input, int64_t output, bool include_pads) {
  std::vector<double> counts(output, static_cast<double>(w.kernel[axis]));
  if (include_pads) return counts;
  for (int64_t o = 0; o < output; ++o) {
    int64_t inside = 0;
    for (int64_t k = 0; k < w.kernel[axis]; ++k) {
      const int64_t at = o * w.strides[axis] + k * w.dilations[axis] - w.begin[axis];
      inside += at >= 0 && at < input;
    }
    counts[o] = static_cast<double>(std::max<int64_t>(inside, 1));
  }
  return counts;
}

// Returns 1 / count per window, in the spatial shape of y, on the device.
at::Tensor Weights(const Args& a, const Window& w, at::IntArrayRef input, at::IntArrayRef output, DType dtype) {
  const bool include_pads = a.attrs().Int("count_include_pad") != 0;
  HostTensor weights = HostTensor::Filled({dtype, output.vec()}, 1);
  std::vector<std::vector<double>> counts;
  for (size_t i = 0; i < w.rank(); ++i) counts.push_back(CountsAlong(w, i, input[i], output[i], include_pads));
  for (int64_t at = 0; at < weights.size(); ++at) {
    double count = 1;
    for (size_t i = w.rank(), rest = at; i-- > 0; rest /= output[i]) count *= counts[i][rest % output[i]];
    weights.Set(at, 1 / count);
  }
  return Upload(weights, a.device);
}

Run AveragePool(const Args& a) {
  const Window w = MakePoolWindow(a);
  const at::Tensor x = Spatial2(a.in[0]);
  at::Tensor y = Spatial2(a.out[0]);
  const SumPool pool = MakeSumPool(w, x.options());
  const DType dtype = a.graph.type(a.node.inputs[0]).dtype;
  const at::Tensor weights = Weights(a, w, x.sizes().slice(2), y.sizes().slice(2), dtype);
  return [=]() mutable { at::mul_out(y, pool.Forward(x).view(y.sizes()), weights); };
}

Run AveragePoolGrad(const Args& a) {
  const Window w = MakePoolWindow(a);
  const at::Tensor dy = Spatial2(a.in[0]), dx = Spatial2(a.out[0]);
  const SumPool pool = MakeSumPool(w, dy.options());
  const DType dtype = a.graph.type(a.node.inputs[0]).dtype;
  const at::Tensor weights = Weights(a, w, dx.sizes().slice(2), dy.sizes().slice(2), dtype);
  return [=] { dx.copy_(pool.Backward(dy * weights, dx)); };
}

}  // namespace

std::span<const NamedKernel> PoolKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"MaxPool", {MaxPool, Types::kNumber}},
      {"MaxPoolGrad", {MaxPoolGrad, Types::kNumber}},
      {"AveragePool", {AveragePool}},
      {"AveragePoolGrad", {AveragePoolGrad}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
