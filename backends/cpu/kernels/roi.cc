// Computes RoiAlign: each bin interpolates its samples between four elements, for all channels.
#include <algorithm>
#include <array>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/ops/sample.h"

namespace onnxtrain::cpu {
namespace {

struct Rois {
  RoiSpec spec;
  int64_t batch, channels, height, width, regions;

  int64_t plane() const { return height * width; }
  int64_t bins() const { return spec.height * spec.width; }
};

Rois MakeRois(const Attrs& attrs, const Shape& x, const Shape& rois) {
  return {RoiSpec::FromAttrs(attrs), x[0], x[1], x[2], x[3], rois[0]};
}

// Four elements of a plane and their weights, which are 0 for samples outside.
template <typename T>
struct Corners {
  std::array<int64_t, 4> index = {};
  std::array<T, 4> weight = {};
};

template <typename T>
Corners<T> MakeCorners(const RoiPair<T>& y, const RoiPair<T>& x, int64_t width) {
  if (!y.inside || !x.inside) return {};
  return {{y.low * width + x.low, y.low * width + x.high, y.high * width + x.low, y.high * width + x.high},
          {y.low_weight * x.low_weight, y.low_weight * x.high_weight, y.high_weight * x.low_weight,
           y.high_weight * x.high_weight}};
}

// One bin of one region.
template <typename T>
struct Bin {
  RoiAxis<T> y, x;
  int64_t row, column;

  int64_t samples() const { return y.samples * x.samples; }

  template <typename F>
  void ForSamples(const Rois& r, F&& f) const {
    for (int64_t i = 0; i < y.samples; ++i) {
      const auto vertical = RoiPair<T>::Make(y.At(row, i), r.height);
      for (int64_t j = 0; j < x.samples; ++j) {
        f(MakeCorners(vertical, RoiPair<T>::Make(x.At(column, j), r.width), r.width));
      }
    }
  }
};

// Calls f(bin, its number) for the bins of a region (x1, y1, x2, y2).
template <typename T, typename F>
void ForBins(const Rois& r, const T* roi, F&& f) {
  const auto y = RoiAxis<T>::Make(r.spec, roi[1], roi[3], r.spec.height);
  const auto x = RoiAxis<T>::Make(r.spec, roi[0], roi[2], r.spec.width);
  for (int64_t b = 0; b < r.bins(); ++b) f(Bin<T>{y, x, b / r.spec.width, b % r.spec.width}, b);
}

int64_t GetImage(const Rois& r, int64_t index) { return std::clamp<int64_t>(index, 0, r.batch - 1); }

template <typename T>
T Dot(const Corners<T>& c, const T* x) {
  return c.weight[0] * x[c.index[0]] + c.weight[1] * x[c.index[1]] + c.weight[2] * x[c.index[2]] +
         c.weight[3] * x[c.index[3]];
}

// The number of channels that are processed together and share the corners of a sample.
constexpr int64_t kChannels = 16;

template <typename T>
void Average(const Rois& r, const Bin<T>& bin, const T* x, int64_t channels, T* y) {
  std::array<T, kChannels> sum = {};
  bin.ForSamples(r, [&](const Corners<T>& c) {
    for (int64_t k = 0; k < channels; ++k) sum[k] += Dot(c, x + k * r.plane());
  });
  const T count = static_cast<T>(std::max<int64_t>(bin.samples(), 1));
  for (int64_t k = 0; k < channels; ++k) y[k * r.bins()] = sum[k] / count;
}

// The largest weighted corner of all samples, which ONNX defines as "max".
template <typename T>
struct Largest {
  T value = 0, weight = 0;
  int64_t index = 0;
  bool any = false;

  void See(const Corners<T>& c, const T* x) {
    for (int i = 0; i < 4; ++i) {
      const T v = c.weight[i] * x[c.index[i]];
      if (any && !(v > value)) continue;
      *this = {v, c.weight[i], c.index[i], true};
    }
  }
};

template <typename T>
using Largests = std::array<Largest<T>, kChannels>;

template <typename T>
Largests<T> FindLargest(const Rois& r, const Bin<T>& bin, const T* x, int64_t channels) {
  Largests<T> largest = {};
  bin.ForSamples(r, [&](const Corners<T>& c) {
    for (int64_t k = 0; k < channels; ++k) largest[k].See(c, x + k * r.plane());
  });
  return largest;
}

template <typename T>
absl::StatusOr<Kernel> RoiAlignKernel(const KernelContext& c) {
  const Rois r = MakeRois(c.attrs(), c.in().shape, c.in(1).shape);
  const int64_t groups = (r.channels + kChannels - 1) / kChannels;
  return Kernel{.run = [=](const Args& args) {
    Parallel(r.regions * groups, kChannels * r.bins() * 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t region = i / groups, first = i % groups * kChannels,
                      channels = std::min(kChannels, r.channels - first);
        const T* x = args.in<T>() + (GetImage(r, args.in<int64_t>(2)[region]) * r.channels + first) * r.plane();
        T* y = args.out<T>() + (region * r.channels + first) * r.bins();
        ForBins(r, args.in<T>(1) + 4 * region, [&](const Bin<T>& bin, int64_t b) {
          if (!r.spec.max) return Average(r, bin, x, channels, y + b);
          const Largests<T> largest = FindLargest(r, bin, x, channels);
          for (int64_t k = 0; k < channels; ++k) y[k * r.bins() + b] = largest[k].value;
        });
      }
    });
  }};
}

template <typename T>
void SpreadAverage(const Rois& r, const Bin<T>& bin, const T* dy, int64_t channels, T* dx) {
  const T share = 1 / static_cast<T>(std::max<int64_t>(bin.samples(), 1));
  bin.ForSamples(r, [&](const Corners<T>& c) {
    for (int64_t k = 0; k < channels; ++k) {
      const T g = dy[k * r.bins()] * share;
      for (int i = 0; i < 4; ++i) dx[k * r.plane() + c.index[i]] += c.weight[i] * g;
    }
  });
}

template <typename T>
void SpreadLargest(const Rois& r, const Bin<T>& bin, const T* dy, const T* x, int64_t channels, T* dx) {
  const Largests<T> largest = FindLargest(r, bin, x, channels);
  for (int64_t k = 0; k < channels; ++k) dx[k * r.plane() + largest[k].index] += largest[k].weight * dy[k * r.bins()];
}

// The inputs are dy, rois, batch index and x. Threads divide the channels; each visits all regions in order.
template <typename T>
absl::StatusOr<Kernel> RoiAlignGradKernel(const KernelContext& c) {
  const Rois r = MakeRois(c.attrs(), c.out().shape, c.in(1).shape);
  const int64_t groups = (r.channels + kChannels - 1) / kChannels;
  return Kernel{.run = [=](const Args& args) {
    Parallel(groups, kChannels * (r.regions * r.bins() * 16 + r.batch * r.plane()), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t first = group * kChannels, channels = std::min(kChannels, r.channels - first);
        for (int64_t n = 0; n < r.batch; ++n)
          std::fill_n(args.out<T>() + (n * r.channels + first) * r.plane(), channels * r.plane(), T(0));
        for (int64_t region = 0; region < r.regions; ++region) {
          const int64_t at = (GetImage(r, args.in<int64_t>(2)[region]) * r.channels + first) * r.plane();
          const T* dy = args.in<T>() + (region * r.channels + first) * r.bins();
          ForBins(r, args.in<T>(1) + 4 * region, [&](const Bin<T>& bin, int64_t b) {
            if (!r.spec.max) return SpreadAverage(r, bin, dy + b, channels, args.out<T>() + at);
            SpreadLargest(r, bin, dy + b, args.in<T>(3) + at, channels, args.out<T>() + at);
          });
        }
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareRoiAlign(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return RoiAlignKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareRoiAlignGrad(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return RoiAlignGradKernel<T>(c); });
}

}  // namespace

std::span<const KernelRow> RoiKernels() {
  constexpr TypeSet kIndexed = kReals | Only(DType::kInt64);
  static constexpr KernelRow kRows[] = {
      {"RoiAlign", PrepareRoiAlign, kIndexed},
      {"RoiAlignGrad", PrepareRoiAlignGrad, kIndexed},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
