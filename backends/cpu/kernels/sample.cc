// Computes GridSample and its gradients: makes tables of taps for a few positions, then applies them to all channels.
#include "frontend/ops/sample.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/kernels/resample.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kPlaces = 128;  // positions of a table
constexpr int kMaxTaps = 16;      // taps of all axes: 4·4 or 2·2·2

struct Sampling {
  SampleSpec spec;
  int axes = 2;
  int taps = 4;                         // product over all axes
  std::array<int64_t, 3> extents = {};  // extents of the image, outermost first
  int64_t batch = 0, channels = 0;
  int64_t plane = 0;   // elements of the image
  int64_t places = 0;  // positions per image
};

// The taps of n ≤ kPlaces positions, as [taps, n].
template <typename T>
struct Table {
  int64_t n = 0;
  std::array<int32_t, kMaxTaps * kPlaces> index;
  std::array<T, kMaxTaps * kPlaces> weight;
};

Sampling MakeSampling(const Attrs& attrs, const Shape& x, const Shape& grid) {
  Sampling s{.spec = SampleSpec::FromAttrs(attrs), .axes = static_cast<int>(x.size()) - 2, .taps = 1};
  for (int a = 0; a < s.axes; ++a) {
    s.taps *= s.spec.taps();
    s.extents[a] = x[2 + a];
  }
  s.batch = x[0];
  s.channels = x[1];
  s.plane = NumElements(Shape(x.begin() + 2, x.end()));
  s.places = NumElements(Shape(grid.begin() + 1, grid.end() - 1));
  return s;
}

absl::Status CheckPlane(const Sampling& s) {
  return s.plane <= std::numeric_limits<int32_t>::max() ? absl::OkStatus()
                                                        : Invalid("planes of more than 2^31 elements");
}

template <typename T>
using AxisTaps = std::array<SampleTaps<T>, 3>;

template <typename T>
AxisTaps<T> TapsAt(const Sampling& s, const T* grid) {
  AxisTaps<T> taps;
  for (int a = 0; a < s.axes; ++a) TapsAlong(s.spec, grid[s.axes - 1 - a], s.extents[a], &taps[a]);
  return taps;
}

// Calls f(t, tap of each axis) for all combinations of taps.
template <typename F>
void ForCombinations(const Sampling& s, F&& f) {
  const int each = s.spec.taps();
  for (int t = 0; t < s.taps; ++t) {
    std::array<int, 3> of = {};
    for (int a = s.axes - 1, rest = t; a >= 0; --a, rest /= each) of[a] = rest % each;
    f(t, of);
  }
}

// Fills the table for table->n positions from `grid` on.
template <typename T>
void FillTable(const Sampling& s, const T* grid, Table<T>* table) {
  for (int64_t o = 0; o < table->n; ++o) {
    const AxisTaps<T> taps = TapsAt(s, grid + o * s.axes);
    ForCombinations(s, [&](int t, const std::array<int, 3>& of) {
      int64_t index = 0;
      T weight = 1;
      for (int a = 0; a < s.axes; ++a) {
        index = index * s.extents[a] + taps[a].index[of[a]];
        weight *= taps[a].weight[of[a]];
      }
      table->index[t * table->n + o] = static_cast<int32_t>(index);
      table->weight[t * table->n + o] = weight;
    });
  }
}

int64_t Chunks(const Sampling& s) { return (s.places + kPlaces - 1) / kPlaces; }

// Calls f(image, first position, table) for the chunks [begin, end) of all images.
template <typename T, typename F>
void ForChunks(const Sampling& s, const T* grid, int64_t begin, int64_t end, F&& f) {
  Table<T> table;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t image = chunk / Chunks(s), first = chunk % Chunks(s) * kPlaces;
    table.n = std::min(kPlaces, s.places - first);
    FillTable(s, grid + (image * s.places + first) * s.axes, &table);
    f(image, first, table);
  }
}

template <typename T>
absl::StatusOr<Kernel> GridSampleKernel(const KernelContext& c) {
  const Sampling s = MakeSampling(c.attrs(), c.in().shape, c.in(1).shape);
  RETURN_IF_ERROR(CheckPlane(s));
  const ResampleSimd<T>& simd = GetResampleSimd<T>();
  return Kernel{.run = [=, &simd](const Args& args) {
    Parallel(s.batch * Chunks(s), kPlaces * s.taps * (s.channels + 4), [&](int64_t begin, int64_t end) {
      ForChunks(s, args.in<T>(1), begin, end, [&](int64_t image, int64_t first, const Table<T>& table) {
        for (int64_t p = image * s.channels; p < (image + 1) * s.channels; ++p) {
          simd.gather(s.taps, args.in<T>() + p * s.plane, table.index.data(), table.weight.data(), table.n,
                      args.out<T>() + p * s.places + first);
        }
      });
    });
  }};
}

template <typename T>
void Scatter(const Sampling& s, const Table<T>& table, const T* dy, T* dx) {
  for (int t = 0; t < s.taps; ++t) {
    const int32_t* index = table.index.data() + t * table.n;
    const T* weight = table.weight.data() + t * table.n;
    for (int64_t o = 0; o < table.n; ++o) dx[index[o]] += weight[o] * dy[o];
  }
}

// Threads divide groups of channels, so that no two write the same elements.
template <typename T>
absl::StatusOr<Kernel> GridSampleInputGradKernel(const KernelContext& c) {
  const Sampling s = MakeSampling(c.attrs(), c.out().shape, c.in(1).shape);
  RETURN_IF_ERROR(CheckPlane(s));
  constexpr int64_t kGroup = 16;
  const int64_t groups = (s.channels + kGroup - 1) / kGroup;
  return Kernel{.run = [=](const Args& args) {
    Parallel(s.batch * groups, kGroup * (s.plane + s.places * s.taps), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / groups, least = i % groups * kGroup, most = std::min(s.channels, least + kGroup);
        std::fill_n(args.out<T>() + (image * s.channels + least) * s.plane, (most - least) * s.plane, T(0));
        ForChunks(s, args.in<T>(1), image * Chunks(s), (image + 1) * Chunks(s),
                  [&](int64_t, int64_t first, const Table<T>& table) {
                    for (int64_t p = image * s.channels + least; p < image * s.channels + most; ++p) {
                      Scatter(s, table, args.in<T>() + p * s.places + first, args.out<T>() + p * s.plane);
                    }
                  });
      }
    });
  }};
}

// Computes the gradient of one position of the grid; sum[t·step] is Σ over channels of dy·x for tap t.
template <typename T>
void PutGridGradient(const Sampling& s, const T* grid, const T* sum, int64_t step, T* dgrid) {
  const AxisTaps<T> taps = TapsAt(s, grid);
  std::array<T, 3> gradient = {};
  ForCombinations(s, [&](int t, const std::array<int, 3>& of) {
    for (int by = 0; by < s.axes; ++by) {
      T weight = sum[t * step];
      for (int a = 0; a < s.axes; ++a) weight *= a == by ? taps[a].slope[of[a]] : taps[a].weight[of[a]];
      gradient[by] += weight;
    }
  });
  for (int a = 0; a < s.axes; ++a) dgrid[s.axes - 1 - a] = gradient[a];
}

// The inputs are dy, x and grid.
template <typename T>
absl::StatusOr<Kernel> GridSampleGridGradKernel(const KernelContext& c) {
  const Sampling s = MakeSampling(c.attrs(), c.in(1).shape, c.in(2).shape);
  RETURN_IF_ERROR(CheckPlane(s));
  const ResampleSimd<T>& simd = GetResampleSimd<T>();
  return Kernel{.run = [=, &simd](const Args& args) {
    Parallel(s.batch * Chunks(s), kPlaces * s.taps * (s.channels + 8), [&](int64_t begin, int64_t end) {
      std::array<T, kMaxTaps * kPlaces> sum;
      ForChunks(s, args.in<T>(2), begin, end, [&](int64_t image, int64_t first, const Table<T>& table) {
        std::fill_n(sum.data(), s.taps * table.n, T(0));
        for (int64_t p = image * s.channels; p < (image + 1) * s.channels; ++p) {
          simd.correlate(s.taps, args.in<T>(1) + p * s.plane, table.index.data(), args.in<T>() + p * s.places + first,
                         table.n, sum.data());
        }
        for (int64_t o = 0; o < table.n; ++o) {
          const int64_t at = (image * s.places + first + o) * s.axes;
          PutGridGradient(s, args.in<T>(2) + at, sum.data() + o, table.n, args.out<T>() + at);
        }
      });
    });
  }};
}

absl::StatusOr<Kernel> PrepareGridSample(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return GridSampleKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareGridSampleInputGrad(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return GridSampleInputGradKernel<T>(c); });
}
absl::StatusOr<Kernel> PrepareGridSampleGridGrad(const KernelContext& c) {
  return ForReal(c.in().dtype, [&]<typename T>(T) { return GridSampleGridGradKernel<T>(c); });
}

}  // namespace

std::span<const KernelRow> SampleKernels() {
  static constexpr KernelRow kRows[] = {
      {"GridSample", PrepareGridSample, kReals},
      {"GridSampleInputGrad", PrepareGridSampleInputGrad, kReals},
      {"GridSampleGridGrad", PrepareGridSampleGridGrad, kReals},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
