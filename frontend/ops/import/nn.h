// Helpers for imports of convolution, pooling, normalization and losses.
#pragma once

#include <span>

#include "frontend/base/status.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/sample.h"
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

// Windows over more spatial axes than the operators have. An axis along which every window is one element belongs to
// the samples or to the channels: JAX's reduce_window over [N,H,W,C] is exported as windows of 1×2×2×1 over
// [1,1,N,H,W,C].

struct WindowAxes {
  Val x;      // [N', C', spatial…] of at most kMaxSpatialAxes
  Windows w;  // over these axes

  bool folded() const { return !order.empty(); }
  // Takes a result [N', C'', spatial…] apart again: in the order of the input's axes.
  Val Restore(Val y) const;

  std::vector<int64_t> order;  // of the input's axes, as they are joined in x; empty where they are x's
  Shape joined;                // their extents in this order
  int channel = 1;             // where the channels are in it
};

// Folds axes of single elements into the samples and, where each channel is pooled by itself, into the channels (the
// axes behind the first true window). Changes nothing up to kMaxSpatialAxes. Negative pads must have been applied.
absl::StatusOr<WindowAxes> FoldWindowAxes(Val x, Windows w, bool channels_alone);
// The weights [O, I, kernel…] of a convolution over x, without the axes that were folded.
Val FoldKernel(Val weights, const WindowAxes& axes);

// Composite sampling operators. import/sample.cc lists their imports.

// MaxRoiPool of any float type: regions [R,5] of images [N,C,H,W] (which image, x1, y1, x2, y2), Girshick (2015). The
// bins' ends are whole elements, as onnxruntime rounds them; a bin without elements gives 0. No gradient for regions.
ImportOr ImportMaxRoiPool(ImportContext& c);

// GridSample's cubic mode over three spatial axes: x [N,C,D,H,W] and grid [N,D',H',W',3] → [N,C,D',H',W'].
absl::StatusOr<Val> SampleCubicVolume(Val x, Val grid, const SampleSpec& spec);

}  // namespace onnxtrain
