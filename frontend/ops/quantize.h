// Quantized tensors: points of a grid, scaled. What rows, import functions and the exporter share.
//
// A quantized value is a number q of a small type; it stands for (q − zero)·scale. Scale and zero point are given for the
// whole tensor, for each index of one axis, or for blocks along one axis (ONNX's QuantizeLinear).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/onnx_import.h"

namespace onnxtrain {

// The numbers that a quantized type holds.
struct Grid {
  DType type;
  double low, high;
};
// Of integers up to 32 bits and of floats of up to 8 bits; nothing for other types.
std::optional<Grid> GridOf(DType dtype);

// Which scale belongs to which element.
class Layout {
 public:
  // For a tensor and scales of these shapes. `axis` may be negative; block 0: none. Fails where they do not fit.
  static absl::StatusOr<Layout> Of(const Shape& tensor, const Shape& scale, int64_t axis, int64_t block);

  // `param`, a scale or zero point of the scale's shape (or of one element), so that it broadcasts against the tensor.
  Val Along(Val param) const;
  // May a zero point of this shape stand beside the scales? Along and the functions below ask for it.
  bool Fits(const Shape& zero) const;
  // Which of the scales belongs to element i of the tensor.
  int64_t operator()(int64_t i) const;

 private:
  enum class Kind : uint8_t { kTensor, kAxis, kBlock };
  Kind kind_ = Kind::kTensor;
  Shape shape_, scale_;        // of the tensor and the scales
  size_t axis_ = 0;
  int64_t block_ = 1, blocks_ = 1, inner_ = 1;
};

// Float weights behind integers. Both compute in float32, or float64 where `scale` or `values` are.
// (q − zero)·scale; `zero` may be null.
HostTensor Dequantized(const HostTensor& q, const HostTensor& scale, const HostTensor* zero, const Layout& layout);
// The points nearest to values/scale + zero. An element that still is what Dequantized gave keeps its number of `old`.
HostTensor Requantized(const HostTensor& values, const HostTensor& old, const HostTensor& scale, const HostTensor* zero,
                       const Layout& layout);

// `value`, but its gradient goes to `carrier` (of the same type) instead, or nowhere without one.
Val StraightThrough(Val value, Val carrier = Val());
// The grid's number nearest to scaled + zero (invalid: 0), as floats; the gradient passes straight through where that is in
// the grid's range (Jacob et al., 2018, arXiv:1712.05877). `saturate` concerns 8-bit floats: what is too large becomes infinite or NaN.
Val OnGrid(Val scaled, Val zero, const Grid& grid, bool saturate = true);
// The same as a tensor of the grid's type. FloatsOf finds the floats behind it again.
Val Quantized(Val on_grid, const Grid& grid);
// The numbers of a quantized tensor as floats of `type`: those that Quantized was given, with their gradient, also through
// operators that only move elements; a Cast where q comes from elsewhere.
Val FloatsOf(Val q, DType type);

// Import functions: ai.onnx and com.microsoft; those that compute on quantized tensors.
std::span<const OnnxOp> QuantizeLinearImports();
std::span<const OnnxOp> QuantizedOpImports();

// Where a weight stands in an operator that reads it quantized: its inputs. The axis of scales is that of the operator.
struct QuantizedWeight {
  std::string_view domain, op_type;
  size_t tensor, scale, zero;
};
const QuantizedWeight* FindQuantizedWeight(std::string_view domain, std::string_view op_type, size_t input);
// How scales lie along the weight of such an operator.
absl::StatusOr<Layout> LayoutOfWeight(const QuantizedWeight& weight, const Attrs& attrs, const Shape& tensor, const Shape& scale);

}  // namespace onnxtrain
