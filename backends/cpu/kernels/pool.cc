// Pooling over one to three spatial axes. Planes are independent, so threads share them out.
#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/kernel.h"
#include "backends/cpu/parallel.h"

namespace onnxtrain::cpu {
namespace {

// Where the windows of one axis begin and which of their elements lie inside.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;

  int64_t Start(int64_t o) const { return o * stride - pad; }
  // The first and the one after the last window element that is inside.
  int64_t First(int64_t o) const { return Start(o) >= 0 ? 0 : (-Start(o) + dilation - 1) / dilation; }
  int64_t Last(int64_t o) const { return std::min(kernel, (in - Start(o) + dilation - 1) / dilation); }
};

// Three axes; those that the tensor lacks have extent 1.
struct Geometry {
  std::array<Axis, 3> axes;
  int64_t planes = 1;

  int64_t input() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t output() const { return axes[0].out * axes[1].out * axes[2].out; }
  int64_t window() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
};

Geometry GeometryOf(const KernelContext& c, const Shape& x, const Shape& y) {
  const auto kernel = c.attrs().Ints("kernel_shape"), strides = c.attrs().Ints("strides"), pads = c.attrs().Ints("pads"),
             dilations = c.attrs().Ints("dilations");
  Geometry g{.planes = x[0] * x[1]};
  const size_t spatial = x.size() - 2;
  for (size_t a = 0; a < spatial; ++a) {
    g.axes[3 - spatial + a] = {x[2 + a], y[2 + a], kernel[a], strides[a], pads[a], dilations[a]};
  }
  return g;
}

// Calls f(input offset) for the elements of output o's window that lie inside, row by row.
template <typename F>
void ForWindow(const Geometry& g, int64_t o0, int64_t o1, int64_t o2, F&& f) {
  const auto& [d, h, w] = g.axes;
  const int64_t w_first = w.First(o2), w_last = w.Last(o2);
  for (int64_t i = d.First(o0), i_end = d.Last(o0); i < i_end; ++i) {
    const int64_t plane = (d.Start(o0) + i * d.dilation) * h.in;
    for (int64_t j = h.First(o1), j_end = h.Last(o1); j < j_end; ++j) {
      const int64_t row = (plane + h.Start(o1) + j * h.dilation) * w.in + w.Start(o2);
      for (int64_t k = w_first; k < w_last; ++k) f(row + k * w.dilation);
    }
  }
}

// Calls f(plane, output offset within it, o0, o1, o2) for all outputs.
template <typename F>
void ForOutputs(const Geometry& g, F f) {
  Parallel(g.planes, g.output() * g.window() * 2, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      int64_t o = 0;
      for (int64_t o0 = 0; o0 < g.axes[0].out; ++o0) {
        for (int64_t o1 = 0; o1 < g.axes[1].out; ++o1) {
          for (int64_t o2 = 0; o2 < g.axes[2].out; ++o2) f(plane, o++, o0, o1, o2);
        }
      }
    }
  });
}

absl::StatusOr<Kernel> PrepareMaxPool(const KernelContext& c) {
  const Geometry g = GeometryOf(c, c.in().shape, c.out().shape);
  return Kernel{.run = [=](const Args& args) {
    ForOutputs(g, [&](int64_t plane, int64_t o, int64_t o0, int64_t o1, int64_t o2) {
      const float* x = args.in() + plane * g.input();
      float best = -std::numeric_limits<float>::infinity();
      int64_t where = -1;
      ForWindow(g, o0, o1, o2, [&](int64_t at) {
        if (x[at] > best || where < 0 || (x[at] != x[at] && best == best)) {
          best = x[at];
          where = at;
        }
      });
      args.out(0)[plane * g.output() + o] = best;
      args.out<int64_t>(1)[plane * g.output() + o] = where;
    });
  }};
}

absl::StatusOr<Kernel> PrepareMaxPoolGrad(const KernelContext& c) {
  const Shape& dx = c.out().shape;
  const int64_t planes = dx[0] * dx[1];
  const int64_t inputs = planes == 0 ? 0 : c.out().elements() / planes, outputs = planes == 0 ? 0 : c.in().elements() / planes;
  return Kernel{.run = [=](const Args& args) {
    Parallel(planes, inputs + 2 * outputs, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        float* to = args.out() + plane * inputs;
        std::fill_n(to, inputs, 0.0f);
        for (int64_t o = plane * outputs; o < (plane + 1) * outputs; ++o) {
          const int64_t at = std::clamp<int64_t>(args.in<int64_t>(1)[o], 0, inputs - 1);
          to[at] += args.in()[o];
        }
      }
    });
  }};
}

int64_t Divisor(const Geometry& g, bool whole, int64_t o0, int64_t o1, int64_t o2) {
  if (whole) return g.window();
  const auto& [d, h, w] = g.axes;
  return (d.Last(o0) - d.First(o0)) * (h.Last(o1) - h.First(o1)) * (w.Last(o2) - w.First(o2));
}

absl::StatusOr<Kernel> PrepareAveragePool(const KernelContext& c) {
  const Geometry g = GeometryOf(c, c.in().shape, c.out().shape);
  const bool whole = c.attrs().Int("count_include_pad") != 0;
  return Kernel{.run = [=](const Args& args) {
    ForOutputs(g, [&](int64_t plane, int64_t o, int64_t o0, int64_t o1, int64_t o2) {
      const float* x = args.in() + plane * g.input();
      float sum = 0;
      ForWindow(g, o0, o1, o2, [&](int64_t at) { sum += x[at]; });
      args.out()[plane * g.output() + o] = sum / static_cast<float>(Divisor(g, whole, o0, o1, o2));
    });
  }};
}

absl::StatusOr<Kernel> PrepareAveragePoolGrad(const KernelContext& c) {
  const Geometry g = GeometryOf(c, c.out().shape, c.in().shape);
  const bool whole = c.attrs().Int("count_include_pad") != 0;
  return Kernel{.run = [=](const Args& args) {
    ForOutputs(g, [&](int64_t plane, int64_t o, int64_t o0, int64_t o1, int64_t o2) {
      float* dx = args.out() + plane * g.input();
      if (o == 0) std::fill_n(dx, g.input(), 0.0f);
      const float share = args.in()[plane * g.output() + o] / static_cast<float>(Divisor(g, whole, o0, o1, o2));
      ForWindow(g, o0, o1, o2, [&](int64_t at) { dx[at] += share; });
    });
  }};
}

}  // namespace

std::span<const KernelRow> PoolKernels() {
  constexpr TypeSet kIndexed = kFloat | Only(DType::kInt64);
  static constexpr KernelRow kRows[] = {
      {"MaxPool", PrepareMaxPool, kIndexed},
      {"MaxPoolGrad", PrepareMaxPoolGrad, kIndexed},
      {"AveragePool", PrepareAveragePool},
      {"AveragePoolGrad", PrepareAveragePoolGrad},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
