// What the import functions of convolutions, pooling, normalization and losses share.
#pragma once

#include <span>

#include "frontend/base/status.h"
#include "frontend/ops/onnx_import.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {

using ImportResult = absl::StatusOr<std::vector<Val>>;

// The first n inputs are given.
absl::Status NeedInputs(const ImportContext& c, size_t n);
// Input 0 is given and is [N,C,spatial…] with 1 to 3 spatial axes.
absl::Status NeedSpatial(const ImportContext& c);
absl::Status Unsupported(std::string_view what);

// kernel_shape as the node gives it, strides, pads and dilations, with ONNX's defaults and auto_pad resolved for an input
// of these extents. Kernel, strides and dilations are checked to be positive and all numbers to be small; pads may still
// be negative (see CropNegativePads).
absl::StatusOr<Windows> ImportWindows(const Attrs& attrs, Shape kernel, std::span<const int64_t> extents);
// Slices off what negative pads take away and sets those pads to 0. Fails where nothing is left.
absl::StatusOr<Val> CropNegativePads(Val x, Windows* w);
// Where ceil_mode lets a last window reach beyond the end pads, how far: one number per axis. Windows that would start
// beyond the input and its begin pad do not exist.
Shape CeilOverhang(const Windows& w, std::span<const int64_t> extents);
// Pads the spatial axes of x: begins, then ends.
Val PadSpatial(Val x, const Shape& pads, double value);

// [C] → [1,C,1,…] against a tensor of this rank.
Val AlongChannels(Val v, int rank);
// All axes of [N,C,spatial…] from 2 on.
std::vector<int64_t> SpatialAxes(Val x);
// The constant 0, 1, … n−1. Fails where it would be unreasonably large.
absl::StatusOr<Val> Iota(Builder& b, int64_t n);
// Ones of `like`'s element type, without memory of their own until run.
Val Ones(Val like, Shape shape);

}  // namespace onnxtrain
