// Helpers for imports of convolution, pooling, normalization and losses.
#pragma once

#include <span>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {

using ImportResult = absl::StatusOr<std::vector<Val>>;

// Requires the first n inputs.
absl::Status RequireInputs(const ImportContext& c, size_t n);
// Requires input 0 [N,C,spatial…] with 1 to 3 spatial axes; with any number of them, for FoldWindowAxes.
absl::Status RequireSpatial(const ImportContext& c);
absl::Status RequireAnySpatial(const ImportContext& c);
absl::Status Unsupported(std::string_view what);

// kernel_shape as the node gives it, strides, pads and dilations, with ONNX's defaults and auto_pad resolved for an
// input of these extents. Kernel, strides and dilations are checked to be positive and all numbers to be small; pads
// may still be negative (see CropNegativePads).
absl::StatusOr<Windows> ImportWindows(const Attrs& attrs, Shape kernel, std::span<const int64_t> extents);
// Applies negative pads as slices and sets them to 0. Fails if nothing is left.
absl::StatusOr<Val> CropNegativePads(Val x, Windows* w);
// Where ceil_mode lets a last window reach beyond the end pads, how far: one number per axis. Windows that would start
// beyond the input and its begin pad do not exist.
Shape CeilModePads(const Windows& w, std::span<const int64_t> extents);
// Pads the spatial axes of x: begins, then ends.
Val PadSpatial(Val x, const Shape& pads, double value);

// [C] → [1,C,1,…] against a tensor of this rank.
Val UnsqueezeToChannels(Val v, int rank);
// Returns the spatial axes of [N,C,spatial…].
std::vector<int64_t> SpatialAxes(Val x);
// Returns the constant 0, 1, … n−1. Fails above the size limit.
absl::StatusOr<Val> Iota(Builder& b, int64_t n);
// Returns ones of `like`'s element type, as an expanded scalar.
Val Ones(Val like, Shape shape);

}  // namespace onnxtrain
