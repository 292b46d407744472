// Computes row-major pooling over one to three spatial axes. Threads divide the planes among them.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "backends/cpu/kernels/pool.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

// Calls f(input offset) for the elements of a window, row by row.
template <typename F>
void ForElements(const PoolGeometry& g, const PoolWindow& window, F&& f) {
  const auto& [d, h, w] = g.axes;
  for (int64_t i = 0; i < window.d.count; ++i) {
    const int64_t plane = (window.d.start + i * d.dilation) * h.in;
    for (int64_t j = 0; j < window.h.count; ++j) {
      const int64_t row = (plane + window.h.start + j * h.dilation) * w.in + window.w.start;
      for (int64_t k = 0; k < window.w.count; ++k) f(row + k * w.dilation);
    }
  }
}

// Calls f(plane, offset of the row's first output within it, windows of the outer axes) for all rows of outputs.
template <typename F>
void ForRows(const PoolGeometry& g, F f) {
  Parallel(g.planes, g.output() * g.window() * 2, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      int64_t o = 0;
      for (const WindowSpan& d : g.axes[0].windows) {
        for (const WindowSpan& h : g.axes[1].windows) {
          f(plane, o, d, h);
          o += static_cast<int64_t>(g.axes[2].windows.size());
        }
      }
    }
  });
}

// Calls f(plane, output offset within it, window) for all outputs.
template <typename F>
void ForOutputs(const PoolGeometry& g, F f) {
  ForRows(g, [&](int64_t plane, int64_t o, const WindowSpan& d, const WindowSpan& h) {
    for (const WindowSpan& w : g.axes[2].windows) f(plane, o++, PoolWindow{d, h, w});
  });
}

// Updates the maxima of n outputs with one tap of their windows. The tap of the first output is at offset `at`, those
// of the next ones are `step` elements apart.
using TapFunction = void (*)(const float* x, int64_t n, int32_t at, float* best, int32_t* where);

}  // namespace

struct PoolSimd {
  TapFunction tap[2];  // by step − 1
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/pool-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/pool-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(PoolTable);
namespace {

template <typename T>
struct Max {
  T value = -std::numeric_limits<T>::infinity();
  int32_t where = -1;

  // The loop has no branches, since the comparison cannot be predicted. A NaN wins.
  void See(T x, int32_t at) {
    const bool more = (x > value) | (where < 0) | ((x != x) & (value == value));
    value = more ? x : value;
    where = more ? at : where;
  }
};

template <typename T>
Max<T> FindWindowMax(const PoolGeometry& g, const T* x, const PoolWindow& w) {
  Max<T> max;
  ForElements(g, w, [&](int64_t at) { max.See(x[at], static_cast<int32_t>(at)); });
  return max;
}

constexpr int64_t kRow = 256;  // most outputs of a call of MaxOfRow

// Computes the outputs [first, first + n) of a row tap by tap. Their windows are inside x along the last axis.
void MaxOfRow(const PoolGeometry& g, TapFunction tap, const float* x, const WindowSpan& d, const WindowSpan& h,
              int64_t first, int64_t n, float* y, int64_t* index) {
  float best[kRow];
  int32_t where[kRow];
  std::fill_n(best, n, -std::numeric_limits<float>::infinity());
  std::fill_n(where, n, -1);
  const PoolAxis& w = g.axes[2];
  ForElements(g, {d, h, {w.windows[first].start, w.kernel}},
              [&](int64_t at) { tap(x + at, n, static_cast<int32_t>(at), best, where); });
  std::copy_n(best, n, y);
  std::copy_n(where, n, index);
}

// The outputs [first, last) of a row whose windows are inside x.
struct Whole {
  int64_t first = 0, last = 0;
};

Whole WholeWindows(const PoolAxis& w) {
  Whole whole;
  const auto n = static_cast<int64_t>(w.windows.size());
  while (whole.first < n && w.windows[whole.first].count < w.kernel) ++whole.first;
  whole.last = whole.first;
  while (whole.last < n && w.windows[whole.last].count == w.kernel) ++whole.last;
  return whole;
}

template <typename T>
absl::StatusOr<Kernel> MaxPoolKernel(const KernelContext& c) {
  const PoolGeometry g = MakePoolGeometry(c.attrs(), c.in().shape, c.out().shape);
  if (g.input() > std::numeric_limits<int32_t>::max()) return Invalid("planes of more than 2^31 elements");
  const int64_t step = c.attrs().Ints("strides").back(), row = c.out().shape.back();
  const bool by_rows = step <= 2 && std::is_same_v<T, float>;
  const Whole whole = by_rows ? WholeWindows(g.axes[2]) : Whole{};
  const TapFunction tap = by_rows ? HWY_DYNAMIC_DISPATCH(PoolTable)().tap[step - 1] : nullptr;
  return Kernel{.run = [=](const Args& args) {
    ForRows(g, [&](int64_t plane, int64_t first, const WindowSpan& d, const WindowSpan& h) {
      const T* x = args.in<T>() + plane * g.input();
      T* y = args.out<T>(0) + plane * g.output() + first;
      int64_t* index = args.out<int64_t>(1) + plane * g.output() + first;
      if constexpr (std::is_same_v<T, float>) {
        for (int64_t o = whole.first; o < whole.last; o += kRow) {
          MaxOfRow(g, tap, x, d, h, o, std::min(kRow, whole.last - o), y + o, index + o);
        }
      }
      for (int64_t o = 0; o < row; ++o) {
        if (o >= whole.first && o < whole.last) continue;
        const Max<T> max = FindWindowMax(g, x, {d, h, g.axes[2].windows[o]});
        y[o] = max.value;
        index[o] = max.where;
      }
    });
  }};
}

template <typename T>
absl::StatusOr<Kernel> MaxPoolGradKernel(const KernelContext& c) {
  const Shape& dx = c.out().shape;
  const int64_t planes = dx[0] * dx[1];
  const int64_t inputs = planes == 0 ? 0 : c.out().elements() / planes,
                outputs = planes == 0 ? 0 : c.in().elements() / planes;
  return Kernel{.run = [=](const Args& args) {
    Parallel(planes, inputs + 2 * outputs, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        T* to = args.out<T>() + plane * inputs;
        std::fill_n(to, inputs, T(0));
        for (int64_t o = plane * outputs; o < (plane + 1) * outputs; ++o) {
          const int64_t at = std::clamp<int64_t>(args.in<int64_t>(1)[o], 0, inputs - 1);
          to[at] += args.in<T>()[o];
        }
      }
    });
  }};
}

template <typename T>
T Divisor(const PoolGeometry& g, bool whole, const PoolWindow& w) {
  return static_cast<T>(whole ? g.window() : w.size());
}

template <typename T>
absl::StatusOr<Kernel> AveragePoolKernel(const KernelContext& c) {
  const PoolGeometry g = MakePoolGeometry(c.attrs(), c.in().shape, c.out().shape);
  const bool whole = c.attrs().Int("count_include_pad") != 0;
  return Kernel{.run = [=](const Args& args) {
    ForOutputs(g, [&](int64_t plane, int64_t o, const PoolWindow& window) {
      const T* x = args.in<T>() + plane * g.input();
      T sum = 0;
      ForElements(g, window, [&](int64_t at) { sum += x[at]; });
      args.out<T>()[plane * g.output() + o] = sum / Divisor<T>(g, whole, window);
    });
  }};
}

template <typename T>
absl::StatusOr<Kernel> AveragePoolGradKernel(const KernelContext& c) {
  const PoolGeometry g = MakePoolGeometry(c.attrs(), c.out().shape, c.in().shape);
  const bool whole = c.attrs().Int("count_include_pad") != 0;
  return Kernel{.run = [=](const Args& args) {
    ForOutputs(g, [&](int64_t plane, int64_t o, const PoolWindow& window) {
      T* dx = args.out<T>() + plane * g.input();
      if (o == 0) std::fill_n(dx, g.input(), T(0));
      const T share = args.in<T>()[plane * g.output() + o] / Divisor<T>(g, whole, window);
      ForElements(g, window, [&](int64_t at) { dx[at] += share; });
    });
  }};
}

absl::StatusOr<Kernel> PrepareMaxPool(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return MaxPoolKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareMaxPoolGrad(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return MaxPoolGradKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareAveragePool(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return AveragePoolKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareAveragePoolGrad(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return AveragePoolGradKernel<T>(c); });
}

}  // namespace

std::span<const KernelRow> PoolKernels() {
  constexpr TypeSet kIndexed = kReals | Only(DType::kInt64);
  constexpr auto kAcrossAxes = [](const KernelContext& c) { return !AveragesAlongFirst(c); };
  static constexpr KernelRow kRows[] = {
      {"MaxPool", PrepareMaxPool, kIndexed},
      {"MaxPoolGrad", PrepareMaxPoolGrad, kIndexed},
      {"AveragePool", PrepareAveragePool, kReals, kAcrossAxes},
      {"AveragePoolGrad", PrepareAveragePoolGrad, kReals, kAcrossAxes},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
