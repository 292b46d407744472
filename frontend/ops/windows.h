// Sliding windows over spatial axes: the geometry that convolutions and pooling share.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

inline constexpr int kMaxSpatialAxes = 3;

// One entry per spatial axis, but pads: all begins, then all ends. Checked: every number is below 2^31, so that sums
// and products of two do not overflow; kernel, strides and dilations are positive, pads are not negative.
struct Windows {
  Shape kernel, strides, pads, dilations;

  size_t axes() const { return kernel.size(); }
  // From the first to the last element that a window touches, inclusive.
  int64_t Reach(size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
};

// Reads strides, pads and dilations, which must have their full lengths.
absl::StatusOr<Windows> ReadWindows(const Attrs& attrs, Shape kernel);
// The attributes strides, pads and dilations (and kernel_shape, for pooling).
Attrs WindowAttrs(const Windows& w);
Attrs PoolAttrs(const Windows& w);

// How many windows fit along each axis, given the spatial extents. Fails where not even one does.
absl::StatusOr<Shape> WindowCounts(const Windows& w, std::span<const int64_t> extents);
// Fails if some window lies in the padding alone: it has no maximum and no mean.
absl::Status CheckWindowsOverlapInput(const Windows& w, std::span<const int64_t> extents);

// [N, C, spatial…] → spatial…
inline std::span<const int64_t> Spatial(const Shape& shape) {
  return std::span<const int64_t>(shape).subspan(shape.size() < 2 ? shape.size() : 2);
}

}  // namespace onnxtrain
