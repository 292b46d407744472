// Computes the windows of pooling over one to three spatial axes.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

// The elements inside the tensor of the window of one output along one axis.
struct WindowSpan {
  int64_t start, count;
  int64_t first = 0;  // number of `start` in the window: elements before it are padding
};

struct PoolAxis {
  int64_t in = 1, kernel = 1, dilation = 1;
  std::vector<WindowSpan> windows = {{0, 1}};  // by output
};

inline PoolAxis MakePoolAxis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  PoolAxis axis{in, kernel, dilation, {}};
  for (int64_t o = 0; o < out; ++o) {
    const int64_t start = o * stride - pad;
    const int64_t first = start >= 0 ? 0 : (-start + dilation - 1) / dilation;
    const int64_t last = std::min(kernel, (in - start + dilation - 1) / dilation);
    axis.windows.push_back({start + first * dilation, last - first, first});
  }
  return axis;
}

// Always has three axes; missing ones have extent 1.
struct PoolGeometry {
  std::array<PoolAxis, 3> axes;
  int64_t planes = 1;

  int64_t input() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t output() const { return axes[0].windows.size() * axes[1].windows.size() * axes[2].windows.size(); }
  int64_t window() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
};

// `attrs` has kernel_shape, strides, pads and dilations; x and y are [N,C,…].
inline PoolGeometry MakePoolGeometry(const Attrs& attrs, const Shape& x, const Shape& y) {
  const auto kernel = attrs.Ints("kernel_shape"), strides = attrs.Ints("strides"), pads = attrs.Ints("pads"),
             dilations = attrs.Ints("dilations");
  PoolGeometry g{.planes = x[0] * x[1]};
  const size_t spatial = x.size() - 2;
  for (size_t a = 0; a < spatial; ++a) {
    g.axes[3 - spatial + a] = MakePoolAxis(x[2 + a], y[2 + a], kernel[a], strides[a], pads[a], dilations[a]);
  }
  return g;
}

// The part of a window inside the tensor.
struct PoolWindow {
  WindowSpan d, h, w;
  int64_t size() const { return d.count * h.count * w.count; }
};

// Returns true for an average pool of float32 over windows along the first spatial axis alone, if the inner axes have
// enough elements. It runs as a pool of channels-last tensors whose channels are the inner axes.
bool AveragesAlongFirst(const KernelContext& c);

}  // namespace onnxtrain::cpu
