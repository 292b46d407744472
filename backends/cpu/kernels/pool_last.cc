// Pooling over [N,…,C]: the channels of every element stand side by side. A backward kernel gathers what it writes, so
// that threads share out the elements of dx.
#include "backends/cpu/channels_last_ops.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/pool.h"
#include "backends/cpu/parallel.h"

namespace onnxtrain::cpu {

// What contributes to one place along one or more axes: an element of its window, or a window that holds it.
struct PoolTap {
  int64_t offset;  // from the first contributing element of the sample
  int32_t number;  // of the element in the window
  float scale;     // average pooling: a factor of the element's share
};

// The contributions to a place: each of `outer` with each of `inner`. Offsets and numbers add up, scales multiply.
struct PoolTaps {
  const PoolTap* outer;
  int outers;
  const PoolTap* inner;
  int inners;
};

// All over n channels.
struct LastPoolLeaf {
  // The first of the largest of x + offset, and its number. A NaN wins.
  void (*max)(const float* x, const PoolTaps& taps, int64_t n, float* y, uint8_t* where);
  // Σ dy + offset where that maximum was the element of the tap's number.
  void (*chosen)(const float* dy, const uint8_t* where, const PoolTaps& taps, int64_t n, float* dx);
  // Σ (x + offset)·scale
  void (*sum)(const float* x, const PoolTaps& taps, int64_t n, float* y);
};

}  // namespace onnxtrain::cpu

#define ONNXTRAIN_LEAF "backends/cpu/kernels/pool_last.leaf.inc"
#include "backends/cpu/foreach_isa.inc"

namespace onnxtrain::cpu {
namespace {

const LastPoolLeaf& Leaf() { return ONNXTRAIN_PICK(kLastPool); }

// The taps of every place along some axes, one after the other.
struct TapTable {
  std::vector<PoolTap> taps;
  std::vector<int32_t> begin = {0};  // by place, and the end of the last one

  int64_t places() const { return static_cast<int64_t>(begin.size()) - 1; }
  const PoolTap* Of(int64_t place) const { return taps.data() + begin[place]; }
  int Count(int64_t place) const { return begin[place + 1] - begin[place]; }
  void Close() { begin.push_back(static_cast<int32_t>(taps.size())); }
};

// `whole`: padding counts as part of a window.
float ShareOf(const PoolAxis& axis, const WindowSpan& w, bool whole) {
  return 1.0f / static_cast<float>(whole ? axis.kernel : w.count);
}

// From the elements of x to the windows: places are windows.
TapTable ForwardTaps(const PoolAxis& axis, bool whole) {
  TapTable table;
  for (const WindowSpan& w : axis.windows) {
    for (int64_t k = 0; k < w.count; ++k) {
      table.taps.push_back({w.start + k * axis.dilation, static_cast<int32_t>(w.first + k), ShareOf(axis, w, whole)});
    }
    table.Close();
  }
  return table;
}

// Places are the elements of x, in each of whose lists the windows stand in order.
TapTable BackwardTaps(const PoolAxis& axis, bool whole) {
  std::vector<std::vector<PoolTap>> of(axis.in);
  for (size_t o = 0; o < axis.windows.size(); ++o) {
    const WindowSpan& w = axis.windows[o];
    for (int64_t k = 0; k < w.count; ++k) {
      of[w.start + k * axis.dilation].push_back(
          {static_cast<int64_t>(o), static_cast<int32_t>(w.first + k), ShareOf(axis, w, whole)});
    }
  }
  TapTable table;
  for (const auto& taps : of) {
    table.taps.insert(table.taps.end(), taps.begin(), taps.end());
    table.Close();
  }
  return table;
}

// Two axes as one: `extent` and `kernel` are the inner one's.
TapTable Joined(const TapTable& outer, const TapTable& inner, int64_t extent, int64_t kernel) {
  TapTable table;
  for (int64_t i = 0; i < outer.places(); ++i) {
    for (int64_t j = 0; j < inner.places(); ++j) {
      for (int a = 0; a < outer.Count(i); ++a) {
        for (int b = 0; b < inner.Count(j); ++b) {
          const PoolTap &o = outer.Of(i)[a], &p = inner.Of(j)[b];
          table.taps.push_back({o.offset * extent + p.offset, static_cast<int32_t>(o.number * kernel + p.number), o.scale * p.scale});
        }
      }
      table.Close();
    }
  }
  return table;
}

// What a vector holds, as in the leaf.
constexpr int64_t kLanes = 16;

struct LastPool {
  TapTable rows;     // over all spatial axes but the last
  TapTable columns;  // over the last one
  int64_t samples = 1, channels = 1;
  int64_t from = 1;  // contributing elements of a sample
  int64_t cost = 1;  // per row
  // Places at the start of a row at which whole vectors of channels may be read and written: what lies behind their own
  // channels is in the same row, and is written afterwards.
  int64_t spilling = 0;
  int64_t rounded = 1;  // the channels in whole vectors
};

int64_t SpillingPlaces(const LastPool& p, int64_t from_width) {
  int64_t w = 0;
  const auto fits = [&](int64_t offset, int64_t width) { return offset + p.rounded <= width * p.channels; };
  for (; w < p.columns.places() && fits(w * p.channels, p.columns.places()); ++w) {
    for (int t = 0; t < p.columns.Count(w); ++t) {
      if (!fits(p.columns.Of(w)[t].offset, from_width)) return w;
    }
  }
  return w;
}

LastPool MakeLastPool(const KernelContext& c, bool backward) {
  const Shape x = ChannelsFirstShape(backward ? c.out().shape : c.in().shape);
  const Shape y = ChannelsFirstShape(backward ? c.in().shape : c.out().shape);
  const bool whole = c.attrs().Int("count_include_pad") != 0;
  const PoolGeometry g = MakePoolGeometry(c.attrs(), x, y);
  const auto table = [&](const PoolAxis& axis) { return backward ? BackwardTaps(axis, whole) : ForwardTaps(axis, whole); };
  const auto extent = [&](const PoolAxis& axis) { return backward ? static_cast<int64_t>(axis.windows.size()) : axis.in; };
  LastPool p{.samples = x[0], .channels = x[1]};
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

// Calls f(offset of the contributing sample, offset of the place, taps, channels to compute) for every place of every
// sample, along each row in order.
template <typename F>
void ForPlaces(const LastPool& p, F&& f) {
  const int64_t rows = p.rows.places(), width = p.columns.places();
  Parallel(p.samples * rows, p.cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % rows, from = i / rows * p.from * p.channels;
      for (int64_t w = 0; w < width; ++w) {
        f(from, (i * width + w) * p.channels,
          PoolTaps{p.rows.Of(row), p.rows.Count(row), p.columns.Of(w), p.columns.Count(w)},
          w < p.spilling ? p.rounded : p.channels);
      }
    }
  });
}

absl::StatusOr<Kernel> PrepareMaxPool(const KernelContext& c) {
  const auto pool = std::make_shared<const LastPool>(MakeLastPool(c, false));
  return Kernel{.run = [pool](const Args& args) {
    ForPlaces(*pool, [&](int64_t from, int64_t to, const PoolTaps& taps, int64_t channels) {
      Leaf().max(args.in() + from, taps, channels, args.out() + to, args.out<uint8_t>(1) + to);
    });
  }};
}

absl::StatusOr<Kernel> PrepareMaxPoolGrad(const KernelContext& c) {
  const auto pool = std::make_shared<const LastPool>(MakeLastPool(c, true));
  return Kernel{.run = [pool](const Args& args) {
    ForPlaces(*pool, [&](int64_t from, int64_t to, const PoolTaps& taps, int64_t channels) {
      Leaf().chosen(args.in() + from, args.in<uint8_t>(1) + from, taps, channels, args.out() + to);
    });
  }};
}

template <bool kBackward>
absl::StatusOr<Kernel> PrepareAveragePool(const KernelContext& c) {
  const auto pool = std::make_shared<const LastPool>(MakeLastPool(c, kBackward));
  return Kernel{.run = [pool](const Args& args) {
    ForPlaces(*pool, [&](int64_t from, int64_t to, const PoolTaps& taps, int64_t channels) {
      Leaf().sum(args.in() + from, taps, channels, args.out() + to);
    });
  }};
}

}  // namespace

std::span<const KernelRow> LastPoolKernels() {
  constexpr TypeSet kNumbered = kFloat | Only(DType::kUInt8);
  static constexpr KernelRow kRows[] = {{"cpu.MaxPool", PrepareMaxPool, kNumbered},
                                        {"cpu.MaxPoolGrad", PrepareMaxPoolGrad, kNumbered},
                                        {"cpu.AveragePool", PrepareAveragePool<false>},
                                        {"cpu.AveragePoolGrad", PrepareAveragePool<true>}};
  return kRows;
}

}  // namespace onnxtrain::cpu
