// Computes pooling of channels-last tensors. Backward kernels gather, so that threads divide the elements of dx; if
// windows do not overlap, max pooling scatters and threads divide the windows.
//
// oneDNN 2.6.3 is no replacement: its max pooling drops NaN (a window of NaN results in the lowest number), and its
// bf16 gradients round at every addition: with overlapping 3×3 windows, half of the gradients of averages and 6 % of
// those of maxima differ from the rounded sum. Its float32 gradients and averages are as exact; bench/pool.cc compares
// times.
#include "backends/cpu/kernels/pool.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

// A contribution to one place along one or more axes: an element of its window, or a window that contains it.
struct PoolTap {
  int64_t offset;  // relative to the first contributing element of the sample
  int32_t number;  // number of the element in the window
  float scale;     // factor of the contribution in average pooling
};

// A row of places. Each tap of `outer` is combined with each tap of the place, inner[begin[i]] to inner[begin[i + 1]]:
// offsets and numbers are added, scales multiplied.
struct PoolRow {
  const PoolTap* outer;
  int outers;
  const PoolTap* inner;
  const int32_t* begin;
  int64_t places, channels;
  int64_t spilling, rounded;  // the first `spilling` places may compute `rounded` channels: whole vectors
};

// Functions over rows of elements of type float or BFloat16.
template <typename T>
struct PoolNhwcSimd {
  // Computes the maximum of the elements at x + offset and the number of the first one. A NaN wins.
  void (*max)(const T* x, const PoolRow& row, T* y, uint8_t* where);
  // Sums the elements at dy + offset whose maximum has the tap's number.
  void (*grad_gather)(const T* dy, const uint8_t* where, const PoolRow& row, T* dx);
  // Computes the same for disjoint windows: the element at dx + offset is dy if the maximum has the tap's number, else
  // 0.
  void (*grad_scatter)(const T* dy, const uint8_t* where, const PoolRow& row, T* dx);
  // Sums the elements at x + offset times scale.
  void (*sum)(const T* x, const PoolRow& row, T* y);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/pool_nhwc-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/pool_nhwc-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(FloatPoolNhwcTable);
HWY_EXPORT(BFloat16PoolNhwcTable);
namespace {

template <typename T>
const PoolNhwcSimd<T>& Simd();
template <>
const PoolNhwcSimd<float>& Simd() {
  return HWY_DYNAMIC_DISPATCH(FloatPoolNhwcTable)();
}
template <>
const PoolNhwcSimd<BFloat16>& Simd() {
  return HWY_DYNAMIC_DISPATCH(BFloat16PoolNhwcTable)();
}

// The taps of all places along some axes, in order of places.
struct TapTable {
  std::vector<PoolTap> taps;
  std::vector<int32_t> begin = {0};  // first tap by place, and the end of the last place

  int64_t places() const { return static_cast<int64_t>(begin.size()) - 1; }
  const PoolTap* Of(int64_t place) const { return taps.data() + begin[place]; }
  int Count(int64_t place) const { return begin[place + 1] - begin[place]; }
  void Close() { begin.push_back(static_cast<int32_t>(taps.size())); }
};

// `whole` counts padding as part of a window.
float GetScale(const PoolAxis& axis, const WindowSpan& w, bool whole) {
  return 1.0f / static_cast<float>(whole ? axis.kernel : w.count);
}

// Returns forward taps: places are windows, taps are elements of x.
TapTable ForwardTaps(const PoolAxis& axis, bool whole) {
  TapTable table;
  for (const WindowSpan& w : axis.windows) {
    for (int64_t k = 0; k < w.count; ++k) {
      table.taps.push_back({w.start + k * axis.dilation, static_cast<int32_t>(w.first + k), GetScale(axis, w, whole)});
    }
    table.Close();
  }
  return table;
}

// Returns backward taps: places are elements of x, taps are windows in ascending order.
TapTable BackwardTaps(const PoolAxis& axis, bool whole) {
  std::vector<std::vector<PoolTap>> of(axis.in);
  for (size_t o = 0; o < axis.windows.size(); ++o) {
    const WindowSpan& w = axis.windows[o];
    for (int64_t k = 0; k < w.count; ++k) {
      of[w.start + k * axis.dilation].push_back(
          {static_cast<int64_t>(o), static_cast<int32_t>(w.first + k), GetScale(axis, w, whole)});
    }
  }
  TapTable table;
  for (const auto& taps : of) {
    table.taps.insert(table.taps.end(), taps.begin(), taps.end());
    table.Close();
  }
  return table;
}

// Merges two axes; `extent` and `kernel` are those of the inner one.
TapTable Joined(const TapTable& outer, const TapTable& inner, int64_t extent, int64_t kernel) {
  TapTable table;
  for (int64_t i = 0; i < outer.places(); ++i) {
    for (int64_t j = 0; j < inner.places(); ++j) {
      for (int a = 0; a < outer.Count(i); ++a) {
        for (int b = 0; b < inner.Count(j); ++b) {
          const PoolTap &o = outer.Of(i)[a], &p = inner.Of(j)[b];
          table.taps.push_back(
              {o.offset * extent + p.offset, static_cast<int32_t>(o.number * kernel + p.number), o.scale * p.scale});
        }
      }
      table.Close();
    }
  }
  return table;
}

// Equals kPoolLanes of pool_nhwc-inl.h.
constexpr int64_t kLanes = 16;

struct PoolNhwc {
  TapTable rows;     // over all spatial axes but the last
  TapTable columns;  // over the last one
  int64_t samples = 1, channels = 1;
  int64_t from = 1;  // contributing elements of a sample
  int64_t cost = 1;  // additions per row
  // The number of places at the start of a row that may read and write whole vectors of channels: the lanes after the
  // last channel are in the same row and are written later.
  int64_t spilling = 0;
  int64_t rounded = 1;  // channels, rounded up to whole vectors
};

int64_t SpillingPlaces(const PoolNhwc& p, int64_t from_width) {
  int64_t w = 0;
  const auto fits = [&](int64_t offset, int64_t width) { return offset + p.rounded <= width * p.channels; };
  for (; w < p.columns.places() && fits(w * p.channels, p.columns.places()); ++w) {
    for (int t = 0; t < p.columns.Count(w); ++t) {
      if (!fits(p.columns.Of(w)[t].offset, from_width)) return w;
    }
  }
  return w;
}

// If `of_gradient`, the node's input is dy and its output dx. If `backward`, places are the elements of dx, else
// windows.
PoolNhwc MakePoolNhwc(const KernelContext& c, bool of_gradient, bool backward) {
  const Shape& x = of_gradient ? c.out().shape : c.in().shape;
  const Shape& y = of_gradient ? c.in().shape : c.out().shape;
  const bool whole = c.attrs().Int("count_include_pad") != 0;
  const PoolGeometry g = MakePoolGeometry(c.attrs(), x, y);
  const auto table = [&](const PoolAxis& axis) {
    return backward ? BackwardTaps(axis, whole) : ForwardTaps(axis, whole);
  };
  const auto extent = [&](const PoolAxis& axis) {
    return backward ? static_cast<int64_t>(axis.windows.size()) : axis.in;
  };
  PoolNhwc p{.samples = x[0], .channels = x[1]};
  p.columns = table(g.axes[2]);
  p.rows = Joined(table(g.axes[0]), table(g.axes[1]), extent(g.axes[1]), g.axes[1].kernel);
  const int64_t width = extent(g.axes[2]);
  for (PoolTap& tap : p.rows.taps) {
    tap.offset *= width * p.channels;
    tap.number *= static_cast<int32_t>(g.axes[2].kernel);
  }
  for (PoolTap& tap : p.columns.taps) tap.offset *= p.channels;
  p.rounded = (p.channels + kLanes - 1) / kLanes * kLanes;
  p.spilling = SpillingPlaces(p, width);
  p.from = extent(g.axes[0]) * extent(g.axes[1]) * width;
  const int64_t row_taps = static_cast<int64_t>(p.rows.taps.size()) / std::max<int64_t>(1, p.rows.places());
  p.cost = p.channels * static_cast<int64_t>(p.columns.taps.size()) * std::max<int64_t>(1, row_taps);
  return p;
}

// Returns true if every element of x is in exactly one window.
bool AreWindowsDisjoint(const KernelContext& c) {
  const Attrs& a = c.attrs();
  const auto kernel = a.Ints("kernel_shape"), pads = a.Ints("pads"), dilations = a.Ints("dilations");
  const auto is = [](int64_t n) { return [n](int64_t i) { return i == n; }; };
  bool apart = a.Ints("strides") == kernel && std::all_of(pads.begin(), pads.end(), is(0)) &&
               std::all_of(dilations.begin(), dilations.end(), is(1));
  for (size_t i = 0; i < kernel.size() && apart; ++i) apart = c.out().shape[2 + i] == c.in().shape[2 + i] * kernel[i];
  return apart;
}

// Calls f(offset of the contributing sample, offset of the row, row) for every row of places, in order in each thread.
// If `by_place`, f writes to the places, else to the contributing sample.
template <typename F>
void ForPoolRows(const PoolNhwc& p, bool by_place, F&& f) {
  const int64_t rows = p.rows.places(), width = p.columns.places(), all = p.samples * rows;
  Parallel(all, p.cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % rows;
      // Lanes after the last channel are safe if this thread writes the next row, and reads are followed by a sample.
      const bool spills = by_place && i + 1 < end && i + rows < all;
      // The last vector of one element must not overwrite the first channels of the next one.
      const int64_t spilling = by_place || p.rounded <= kLanes ? p.spilling : 0;
      f(i / rows * p.from * p.channels, i * width * p.channels,
        PoolRow{p.rows.Of(row), p.rows.Count(row), p.columns.taps.data(), p.columns.begin.data(), width, p.channels,
                spills ? width : spilling, p.rounded});
    }
  });
}

using SharedPool = std::shared_ptr<const PoolNhwc>;

template <typename T>
Kernel MaxPool(const SharedPool& pool) {
  return {.run = [pool](const Args& args) {
    ForPoolRows(*pool, true, [&](int64_t from, int64_t to, const PoolRow& row) {
      Simd<T>().max(args.in<T>() + from, row, args.out<T>() + to, args.out<uint8_t>(1) + to);
    });
  }};
}

template <typename T>
Kernel MaxPoolGradScatter(const SharedPool& pool) {
  return {.run = [pool](const Args& args) {
    ForPoolRows(*pool, false, [&](int64_t to, int64_t from, const PoolRow& row) {
      Simd<T>().grad_scatter(args.in<T>() + from, args.in<uint8_t>(1) + from, row, args.out<T>() + to);
    });
  }};
}

template <typename T>
Kernel MaxPoolGradGather(const SharedPool& pool) {
  return {.run = [pool](const Args& args) {
    ForPoolRows(*pool, true, [&](int64_t from, int64_t to, const PoolRow& row) {
      Simd<T>().grad_gather(args.in<T>() + from, args.in<uint8_t>(1) + from, row, args.out<T>() + to);
    });
  }};
}

template <typename T>
Kernel SumPool(const SharedPool& pool) {
  return {.run = [pool](const Args& args) {
    ForPoolRows(*pool, true, [&](int64_t from, int64_t to, const PoolRow& row) {
      Simd<T>().sum(args.in<T>() + from, row, args.out<T>() + to);
    });
  }};
}

SharedPool Shared(const KernelContext& c, bool of_gradient, bool backward) {
  return std::make_shared<const PoolNhwc>(MakePoolNhwc(c, of_gradient, backward));
}

absl::StatusOr<Kernel> PrepareMaxPool(const KernelContext& c) {
  return ForFloat(c.in().dtype, [&]<typename T>(T) { return MaxPool<T>(Shared(c, false, false)); });
}

absl::StatusOr<Kernel> PrepareMaxPoolGrad(const KernelContext& c) {
  const bool apart = AreWindowsDisjoint(c);
  const SharedPool pool = Shared(c, true, !apart);
  return ForFloat(c.in().dtype,
                  [&]<typename T>(T) { return apart ? MaxPoolGradScatter<T>(pool) : MaxPoolGradGather<T>(pool); });
}

bool HasIndexInWindow(const KernelContext& c) {
  return (c.node.op == "MaxPool" ? c.out(1) : c.in(1)).dtype == DType::kUInt8;
}

template <bool kBackward>
absl::StatusOr<Kernel> PrepareAveragePool(const KernelContext& c) {
  return ForFloat(c.in().dtype, [&]<typename T>(T) { return SumPool<T>(Shared(c, kBackward, kBackward)); });
}

// Prepares the pool of [N·C,A,…] as one of channels-last tensors whose channels are the axes after A.
template <bool kBackward>
absl::StatusOr<Kernel> PrepareAverageAlongFirst(const KernelContext& c) {
  const auto rows = [](const Shape& shape) {
    return Shape{shape[0] * shape[1], NumElements(Shape(shape.begin() + 3, shape.end())), shape[2]};
  };
  PhysicalNode node{c.attrs(), {{DType::kFloat32, rows(c.in().shape)}}, {{DType::kFloat32, rows(c.out().shape)}}};
  const auto pads = c.attrs().Ints("pads");
  for (const char* name : {"kernel_shape", "strides", "dilations"})
    node.attrs.Set(name, Shape{c.attrs().Ints(name)[0]});
  node.attrs.Set("pads", Shape{pads[0], pads[pads.size() / 2]});
  return PrepareAveragePool<kBackward>({c.graph, c.node, &node});
}

}  // namespace

bool AveragesAlongFirst(const KernelContext& c) {
  constexpr int64_t kFew = 8;
  const Attrs& a = c.attrs();
  const auto kernel = a.Ints("kernel_shape"), strides = a.Ints("strides"), pads = a.Ints("pads");
  for (size_t i = 1; i < kernel.size(); ++i) {
    if (kernel[i] != 1 || strides[i] != 1 || pads[i] != 0 || pads[kernel.size() + i] != 0) return false;
  }
  const Shape& x = c.in().shape;
  return c.in().dtype == DType::kFloat32 && c.out().elements() > 0 &&
         NumElements(Shape(x.begin() + 3, x.end())) >= kFew;
}

std::span<const KernelRow> PoolNhwcKernels() {
  constexpr TypeSet kNumbered = kFloat | Only(DType::kUInt8);
  constexpr Layout kLast = Layout::kChannelsLast;
  static constexpr KernelRow kRows[] = {{"MaxPool", PrepareMaxPool, kNumbered, HasIndexInWindow, kLast, 1},
                                        {"MaxPoolGrad", PrepareMaxPoolGrad, kNumbered, HasIndexInWindow, kLast, 1},
                                        {"AveragePool", PrepareAverageAlongFirst<false>, kFloat, AveragesAlongFirst},
                                        {"AveragePoolGrad", PrepareAverageAlongFirst<true>, kFloat, AveragesAlongFirst},
                                        {"AveragePool", PrepareAveragePool<false>, kFloat, nullptr, kLast, 1},
                                        {"AveragePoolGrad", PrepareAveragePool<true>, kFloat, nullptr, kLast, 1}};
  return kRows;
}

}  // namespace onnxtrain::cpu
