// Coordinates and weights of GridSample and RoiAlign, shared by host evaluation and the cpu kernels. T is the type in
// which coordinates are computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "frontend/graph/graph.h"

namespace onnxtrain {

enum class SampleMode : uint8_t { kNearest, kLinear, kCubic };
enum class SamplePadding : uint8_t { kZeros, kBorder, kReflection };

struct SampleSpec {
  SampleMode mode = SampleMode::kLinear;
  SamplePadding padding = SamplePadding::kZeros;
  bool align_corners = false;

  // Reads the attributes of a GridSample, which must have passed the type rule.
  static SampleSpec FromAttrs(const Attrs& attrs);
  int taps() const { return mode == SampleMode::kNearest ? 1 : mode == SampleMode::kLinear ? 2 : 4; }
};

// The elements read along one axis: up to four indices, with their weights and the derivatives of the weights by the
// grid coordinate. An element outside the input has index, weight and slope 0.
template <typename T>
struct SampleTaps {
  int64_t index[4];
  T weight[4], slope[4];
};

// A coordinate in elements, and its derivative by the grid coordinate.
template <typename T>
struct SampleCoordinate {
  T at, slope;
};

template <typename T>
SampleCoordinate<T> Reflected(SampleCoordinate<T> c, int64_t n, bool align_corners) {
  const T low = align_corners ? T(0) : T(-0.5);
  const T span = align_corners ? static_cast<T>(n - 1) : static_cast<T>(n);
  if (span == 0) return {0, 0};
  const bool below = c.at < low;
  const T distance = below ? low - c.at : c.at - low;
  const T flips = std::floor(distance / span), rest = std::fmod(distance, span);
  const bool even = std::fmod(flips, T(2)) == 0;
  return {even ? rest + low : span - rest + low, (below == even) ? -c.slope : c.slope};
}

template <typename T>
SampleCoordinate<T> Padded(const SampleSpec& spec, SampleCoordinate<T> c, int64_t n) {
  if (spec.padding == SamplePadding::kZeros) return c;
  if (spec.padding == SamplePadding::kReflection) c = Reflected(c, n, spec.align_corners);
  const T last = static_cast<T>(n - 1);
  if (!(c.at > 0)) return {0, 0};
  return c.at >= last ? SampleCoordinate<T>{last, 0} : c;
}

// Replaces NaN and coordinates far outside by one just outside, which converts to an integer safely.
template <typename T>
T SanitizeCoordinate(T x) {
  return std::fabs(x) < T(1e9) ? x : T(-100);
}

template <typename T>
void PutTap(SampleTaps<T>* t, int k, int64_t index, int64_t n, T weight, T slope) {
  const bool inside = index >= 0 && index < n;
  t->index[k] = inside ? index : 0;
  t->weight[k] = inside ? weight : T(0);
  t->slope[k] = inside ? slope : T(0);
}

// The cubic kernel of Keys (1981) with a = −0.75, and its derivative, at distance d ≥ 0.
template <typename T>
T CubicWeight(T d) {
  constexpr T a = T(-0.75);
  return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}
template <typename T>
T CubicSlope(T d) {
  constexpr T a = T(-0.75);
  return d <= 1 ? (3 * (a + 2) * d - 2 * (a + 3)) * d : (3 * a * d - 10 * a) * d + 8 * a;
}

template <typename T>
void CubicTaps(const SampleSpec& spec, SampleCoordinate<T> c, int64_t n, SampleTaps<T>* t) {
  c.at = SanitizeCoordinate(c.at);
  const T base = std::floor(c.at), r = c.at - base;
  for (int k = 0; k < 4; ++k) {
    const T at = base + static_cast<T>(k - 1), d = std::fabs(static_cast<T>(k - 1) - r);
    const T sign = k < 2 ? T(1) : T(-1);  // the distance to an element before the coordinate grows with the coordinate
    const T read = SanitizeCoordinate(Padded(spec, SampleCoordinate<T>{at, 0}, n).at);
    PutTap(t, k, static_cast<int64_t>(read), n, CubicWeight(d), sign * CubicSlope(d) * c.slope);
  }
}

// Returns the taps for grid coordinate g, in −1 … 1, along an axis of extent n.
template <typename T>
void TapsAlong(const SampleSpec& spec, T g, int64_t n, SampleTaps<T>* t) {
  const auto extent = static_cast<T>(n);
  SampleCoordinate<T> c = spec.align_corners ? SampleCoordinate<T>{(g + 1) / 2 * (extent - 1), (extent - 1) / 2}
                                             : SampleCoordinate<T>{((g + 1) * extent - 1) / 2, extent / 2};
  if (spec.mode == SampleMode::kCubic) return CubicTaps(spec, c, n, t);
  c = Padded(spec, c, n);
  c.at = SanitizeCoordinate(c.at);
  if (spec.mode == SampleMode::kNearest) return PutTap(t, 0, static_cast<int64_t>(std::nearbyint(c.at)), n, T(1), T(0));
  const T base = std::floor(c.at), r = c.at - base;
  PutTap(t, 0, static_cast<int64_t>(base), n, 1 - r, -c.slope);
  PutTap(t, 1, static_cast<int64_t>(base) + 1, n, r, c.slope);
}

struct RoiSpec {
  int64_t height = 1, width = 1;  // bins
  int64_t sampling_ratio = 0;
  double scale = 1;
  bool half_pixel = true, max = false;

  static RoiSpec FromAttrs(const Attrs& attrs);
};

// Limits the samples per bin and axis if their number depends on the size of the region.
inline constexpr int64_t kMaxRoiSamples = 1024;

// The samples of one region along one axis.
template <typename T>
struct RoiAxis {
  T start, bin;
  int64_t samples;  // samples per bin

  static RoiAxis Make(const RoiSpec& spec, T begin, T end, int64_t bins) {
    const T scale = static_cast<T>(spec.scale), shift = spec.half_pixel ? T(0.5) : T(0);
    const T start = begin * scale - shift;
    T length = (end * scale - shift) - start;
    if (!spec.half_pixel) length = std::max(length, T(1));
    const T bin = length / static_cast<T>(bins);
    const T wanted = spec.sampling_ratio > 0 ? static_cast<T>(spec.sampling_ratio) : std::ceil(bin);
    const T most = static_cast<T>(kMaxRoiSamples);
    return {start, bin, static_cast<int64_t>(wanted > 0 ? std::min(wanted, most) : T(0))};
  }
  T At(int64_t b, int64_t s) const {
    return start + static_cast<T>(b) * bin + (static_cast<T>(s) + T(0.5)) * bin / static_cast<T>(samples);
  }
};

// Returns the two elements next to a sample, with their weights; the weights are 0 for a sample outside the input.
template <typename T>
struct RoiPair {
  int64_t low = 0, high = 0;
  T low_weight = 0, high_weight = 0;
  bool inside = false;

  static RoiPair Make(T x, int64_t n) {
    if (!(x >= -1) || !(x <= static_cast<T>(n))) return {};
    x = std::max(x, T(0));
    const auto low = static_cast<int64_t>(x);
    if (low >= n - 1) return {n - 1, n - 1, 1, 0, true};
    const T r = x - static_cast<T>(low);
    return {low, low + 1, 1 - r, r, true};
  }
};

}  // namespace onnxtrain
