// Sliding windows over spatial axes, the geometry of convolutions and pooling.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

inline constexpr int kMaxSpatialAxes = 3;

// Describes a window by one entry per spatial axis; pads have all begins, then all ends. Invariants: kernel, strides
// and dilations are positive, pads are not negative, and all are below 2^31, so that sums and products of two do not
// overflow.
struct Windows {
  Shape kernel, strides, pads, dilations;

  size_t axes() const { return kernel.size(); }
  // Returns the distance from the first to the last element of a window, inclusive.
  int64_t Reach(size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
};

// Reads and checks strides, pads and dilations, which must have one entry per axis (pads: two).
absl::StatusOr<Windows> ReadWindows(const Attrs& attrs, Shape kernel);
// Return the attributes strides, pads and dilations; PoolAttrs also kernel_shape.
Attrs WindowAttrs(const Windows& w);
Attrs PoolAttrs(const Windows& w);

// Returns the number of windows along each axis of an input with these spatial extents. Fails if an axis has none.
absl::StatusOr<Shape> WindowCounts(const Windows& w, std::span<const int64_t> extents);
// Fails if a window contains only padding, since it has neither maximum nor mean.
absl::Status CheckWindowsOverlapInput(const Windows& w, std::span<const int64_t> extents);

// Returns the spatial extents of [N, C, spatial…].
inline std::span<const int64_t> Spatial(const Shape& shape) {
  return std::span<const int64_t>(shape).subspan(shape.size() < 2 ? shape.size() : 2);
}

}  // namespace onnxtrain
