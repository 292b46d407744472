// Helpers for import functions of several families.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/sample.h"
#include "frontend/ops/windows.h"

namespace onnxtrain {

using ImportOr = absl::StatusOr<std::vector<Val>>;

inline ImportOr One(Val y) { return std::vector<Val>{y}; }

// Imports the node as the canonical operator of the same name, with its inputs and attributes. Drops `consumed_inputs`,
// which hints at in-place execution in opset 1.
ImportOr ImportSame(ImportContext& c);
// Returns input 1, reshaped to broadcast against input 0. Before opset 7, `broadcast` enables broadcasting, and `axis`
// is the first axis of input 0 that input 1 covers.
absl::StatusOr<Val> SecondOperand(ImportContext& c);
// Returns the attribute `axis` (or `otherwise`), normalized to [0, rank).
absl::StatusOr<int64_t> ReadAxis(ImportContext& c, int64_t otherwise, int64_t rank);
// Normalizes each axis to [0, rank). Fails on repeats.
absl::StatusOr<std::vector<int64_t>> NormalizeAxes(std::vector<int64_t> axes, int64_t rank);
// Return the element of input i, which must be known and have one element. `what` names it in errors.
absl::StatusOr<int64_t> KnownInt(ImportContext& c, size_t i, std::string_view what);
absl::StatusOr<double> KnownDouble(ImportContext& c, size_t i, std::string_view what);
// Converts an ONNX type number; fails for unsupported types.
absl::StatusOr<DType> ElementType(int64_t onnx_type);
// Imports a different ONNX operator, of the newest supported opset, with these inputs and attributes.
ImportOr ImportAs(ImportContext& c, std::string_view domain, std::string_view op_type, std::vector<Val> inputs,
                  Attrs attrs);
// Gathers x at a constant index, which must be in range.
Val GatherConstant(Val x, const std::vector<int64_t>& index, int64_t axis);

// Requires the first n inputs.
absl::Status RequireInputs(const ImportContext& c, size_t n);
// Require input 0 [N,C,spatial…]: with 1 to 3 spatial axes, or, for FoldWindowAxes, any number.
absl::Status RequireSpatial(const ImportContext& c);
absl::Status RequireAnySpatial(const ImportContext& c);
absl::Status Unsupported(std::string_view what);

// Reads strides, pads and dilations with ONNX's defaults, and resolves auto_pad for an input of these spatial extents.
// Checks that kernel, strides and dilations are positive and that all numbers are small. Pads may still be negative
// (see CropNegativePads).
absl::StatusOr<Windows> ImportWindows(const Attrs& attrs, Shape kernel, std::span<const int64_t> extents);
// Applies negative pads as slices and sets them to 0. Fails if nothing is left.
absl::StatusOr<Val> CropNegativePads(Val x, Windows* w);
// Returns, for each axis, the number of elements by which the last window extends beyond the end pads under ceil_mode.
// Ignores windows that start after the input and its begin pad.
Shape CeilModePads(const Windows& w, std::span<const int64_t> extents);
// Pads the spatial axes of x. `pads` has all begins, then all ends.
Val PadSpatial(Val x, const Shape& pads, double value);

// Reshapes [C] to [1,C,1,…] to broadcast against a tensor of this rank.
Val UnsqueezeToChannels(Val v, int rank);
// Returns the spatial axes of [N,C,spatial…].
std::vector<int64_t> SpatialAxes(Val x);
// Returns the constant 0, 1, … n−1. Fails above the size limit.
absl::StatusOr<Val> Iota(Builder& b, int64_t n);
// Returns ones of `like`'s element type, as an expanded scalar.
Val Ones(Val like, Shape shape);

// Windows over more spatial axes than the operators support, after joining axes with windows of one element with the
// sample or channel axis. JAX exports reduce_window over [N,H,W,C] as windows of 1×2×2×1 over [1,1,N,H,W,C].
struct WindowAxes {
  Val x;      // [N', C', spatial…] of at most kMaxSpatialAxes
  Windows w;  // over these axes

  bool folded() const { return !order.empty(); }
  // Splits the joined axes of a result [N', C'', spatial…] and restores the order of the input axes.
  Val Restore(Val y) const;

  std::vector<int64_t> order;  // input axes in the order in which x joins them; empty if nothing was joined
  Shape joined;                // extents in this order
  int channel = 1;             // position of the channel axis in `order`
};

// Joins axes with windows of one element with the samples or, if `channels_alone` (each channel is pooled separately),
// those after the first larger window with the channels. Changes nothing if there are at most kMaxSpatialAxes. Requires
// CropNegativePads.
absl::StatusOr<WindowAxes> FoldWindowAxes(Val x, Windows w, bool channels_alone);
// Removes the joined axes from the weights [O, I, kernel…] of a convolution over x.
Val FoldKernel(Val weights, const WindowAxes& axes);

// Imports MaxRoiPool (Girshick, 2015) of images [N,C,H,W] and regions [R,5] (image, x1, y1, x2, y2). Bins end at whole
// elements, rounded as in onnxruntime; the result of an empty bin is 0. Regions have no gradient.
ImportOr ImportMaxRoiPool(ImportContext& c);

// Builds the cubic mode of GridSample over three spatial axes: x [N,C,D,H,W] and grid [N,D',H',W',3] → [N,C,D',H',W'].
absl::StatusOr<Val> SampleCubicVolume(Val x, Val grid, const SampleSpec& spec);

// Attribute of Gather, set by the importer and not stored in files: the row of the table that represents padding.
inline constexpr char kPaddingRow[] = "pytorch.padding_row";

// Returns input i as i64. Fails if its values are known and one is outside [−extent, extent).
absl::StatusOr<Val> IndexInput(ImportContext& c, size_t i, int64_t extent);

// Tuples of indices into leading axes of x, converted to offsets into their product.
struct Flattened {
  Val offset;  // i64, with the shape of the tuples without the last axis
  Shape rows;  // shape of x with the indexed axes merged: [product, other axes…]
};

// Flattens the tuples along the last axis of input `input`, which index axes batch, batch + 1, … of x. The first
// `batch` axes of both are the same.
absl::StatusOr<Flattened> FlattenIndex(ImportContext& c, Val x, size_t input, int64_t batch);

}  // namespace onnxtrain
