// Computes convolutions of float64, which oneDNN lacks: y[n,m,o] = Σ w[m,c,k]·x[n,c,o·stride + k·dilation − pad] and
// its two gradients, as sums of rows. Threads write separate planes.
#include <algorithm>
#include <array>

#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// One of always three spatial axes; missing ones have extent 1.
struct Axis {
  int64_t x = 1, k = 1, y = 1, stride = 1, dilation = 1, pad = 0;

  // The outputs [first, end) whose element under tap t is inside x.
  int64_t First(int64_t t) const { return std::clamp<int64_t>((pad - t * dilation + stride - 1) / stride, 0, y); }
  int64_t End(int64_t t) const {
    const int64_t last = x - 1 + pad - t * dilation;
    return last < 0 ? 0 : std::min(y, last / stride + 1);
  }
  int64_t At(int64_t o, int64_t t) const { return o * stride + t * dilation - pad; }
};

struct Geometry {
  int64_t samples, inputs, outputs, group;  // channels of x and y
  std::array<Axis, 3> axes;

  int64_t x() const { return axes[0].x * axes[1].x * axes[2].x; }  // elements of a plane
  int64_t y() const { return axes[0].y * axes[1].y * axes[2].y; }
  int64_t taps() const { return axes[0].k * axes[1].k * axes[2].k; }
  int64_t inputs_per_group() const { return inputs / group; }
  int64_t outputs_per_group() const { return outputs / group; }
};

Geometry MakeGeometry(const KernelContext& c, const Shape& x, const Shape& w, const Shape& y) {
  const auto strides = c.attrs().Ints("strides"), pads = c.attrs().Ints("pads"),
             dilations = c.attrs().Ints("dilations");
  Geometry g{x[0], x[1], y[1], c.attrs().Int("group", 1), {}};
  const size_t spatial = x.size() - 2;
  for (size_t a = 0; a < spatial; ++a) {
    g.axes[3 - spatial + a] = {x[2 + a], w[2 + a], y[2 + a], strides[a], dilations[a], pads[a]};
  }
  return g;
}

// Calls f(tap, offset in the plane of x, offset in that of y, length) for all rows of outputs and all taps of the
// kernel. Along a row, x advances by the last axis' stride and y by 1.
template <typename F>
void ForTaps(const Geometry& g, F f) {
  const auto& [d, h, w] = g.axes;
  for (int64_t tap = 0; tap < g.taps(); ++tap) {
    const int64_t kd = tap / (h.k * w.k), kh = tap / w.k % h.k, kw = tap % w.k;
    const int64_t first = w.First(kw), length = w.End(kw) - first;
    if (length <= 0) continue;
    for (int64_t od = d.First(kd); od < d.End(kd); ++od) {
      for (int64_t oh = h.First(kh); oh < h.End(kh); ++oh) {
        f(tap, (d.At(od, kd) * h.x + h.At(oh, kh)) * w.x + w.At(first, kw), (od * h.y + oh) * w.y + first, length);
      }
    }
  }
}

int64_t PlaneCost(const Geometry& g) { return g.y() * g.taps(); }

absl::StatusOr<Kernel> PrepareConv(const KernelContext& c) {
  const Geometry g = MakeGeometry(c, c.in(0).shape, c.in(1).shape, c.out().shape);
  const bool bias = c.has(2);
  const int64_t step = g.axes[2].stride, channels = g.inputs_per_group();
  return Kernel{.run = [=](const Args& args) {
    Parallel(g.samples * g.outputs, channels * PlaneCost(g), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / g.outputs, m = i % g.outputs;
        double* y = args.out<double>() + i * g.y();
        std::fill_n(y, g.y(), bias ? args.in<double>(2)[m] : 0.0);
        for (int64_t k = 0; k < channels; ++k) {
          const double* x = args.in<double>(0) + (n * g.inputs + m / g.outputs_per_group() * channels + k) * g.x();
          const double* w = args.in<double>(1) + (m * channels + k) * g.taps();
          ForTaps(g, [&](int64_t tap, int64_t from, int64_t to, int64_t length) {
            for (int64_t j = 0; j < length; ++j) y[to + j] += w[tap] * x[from + j * step];
          });
        }
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareConvTranspose(const KernelContext& c) {
  const Geometry g = MakeGeometry(c, c.out().shape, c.in(1).shape, c.in(0).shape);
  const int64_t step = g.axes[2].stride, channels = g.inputs_per_group(), outputs = g.outputs_per_group();
  return Kernel{.run = [=](const Args& args) {
    Parallel(g.samples * g.inputs, outputs * PlaneCost(g), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / g.inputs, channel = i % g.inputs, first = channel / channels * outputs;
        double* dx = args.out<double>() + i * g.x();
        std::fill_n(dx, g.x(), 0.0);
        for (int64_t m = first; m < first + outputs; ++m) {
          const double* dy = args.in<double>(0) + (n * g.outputs + m) * g.y();
          const double* w = args.in<double>(1) + (m * channels + channel % channels) * g.taps();
          ForTaps(g, [&](int64_t tap, int64_t to, int64_t from, int64_t length) {
            for (int64_t j = 0; j < length; ++j) dx[to + j * step] += w[tap] * dy[from + j];
          });
        }
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareConvWeightGrad(const KernelContext& c) {
  const Geometry g = MakeGeometry(c, c.in(0).shape, c.out().shape, c.in(1).shape);
  const int64_t step = g.axes[2].stride, channels = g.inputs_per_group();
  return Kernel{.run = [=](const Args& args) {
    Parallel(g.outputs * channels, g.samples * PlaneCost(g), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t m = i / channels, channel = m / g.outputs_per_group() * channels + i % channels;
        double* dw = args.out<double>() + i * g.taps();
        std::fill_n(dw, g.taps(), 0.0);
        for (int64_t n = 0; n < g.samples; ++n) {
          const double* x = args.in<double>(0) + (n * g.inputs + channel) * g.x();
          const double* dy = args.in<double>(1) + (n * g.outputs + m) * g.y();
          ForTaps(g, [&](int64_t tap, int64_t at, int64_t from, int64_t length) {
            for (int64_t j = 0; j < length; ++j) dw[tap] += x[at + j * step] * dy[from + j];
          });
        }
      }
    });
  }};
}

}  // namespace

std::span<const KernelRow> DoubleConvKernels() {
  static constexpr KernelRow kRows[] = {{"Conv", PrepareConv, kDouble},
                                        {"ConvTranspose", PrepareConvTranspose, kDouble},
                                        {"ConvWeightGrad", PrepareConvWeightGrad, kDouble}};
  return kRows;
}

}  // namespace onnxtrain::cpu
