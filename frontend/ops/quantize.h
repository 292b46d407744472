// Quantized tensors as scaled points of a grid, for rows, import functions and the exporter.
//
// A quantized value is a number q of a small type with the real value (q − zero)·scale. A tensor has one scale and zero
// point, one per index of an axis, or one per block along an axis (ONNX's QuantizeLinear).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// The range of a quantized type.
struct Grid {
  DType type;
  double low, high;
};
// Returns the grid of integers up to 32 bits and floats up to 8 bits; nothing for other types.
std::optional<Grid> FindGrid(DType dtype);

// Maps elements to scales.
class ScaleLayout {
 public:
  // Creates the map for a tensor and scales of these shapes. `axis` may be negative; block 0: no blocks. Scales of a
  // single block may lack its axis. Fails for shapes that do not match.
  static absl::StatusOr<ScaleLayout> Create(const Shape& tensor, const Shape& scale, int64_t axis, int64_t block);

  // Reshapes `param`, a scale or zero point of the scale's shape or of one element, to broadcast against the tensor.
  Val Along(Val param) const;
  // Returns whether a zero point may have this shape. Along and the functions below require it.
  bool Fits(const Shape& zero) const;
  // Returns the index of the scale of element i.
  int64_t operator()(int64_t i) const;

 private:
  enum class Kind : uint8_t { kTensor, kAxis, kBlock };
  Kind kind_ = Kind::kTensor;
  Shape shape_, scale_;  // of the tensor and the scales
  size_t axis_ = 0;
  int64_t block_ = 1, blocks_ = 1, inner_ = 1;
};

// Converts between integers and float weights. Both functions compute in float32, or in float64 if `scale` or `values`
// are float64.
// Returns (q − zero)·scale; `zero` may be null.
HostTensor Dequantized(const HostTensor& q, const HostTensor& scale, const HostTensor* zero, const ScaleLayout& layout);
// Returns the points nearest to values/scale + zero. Elements that Dequantized returned unchanged keep their number in
// `old`.
HostTensor Requantized(const HostTensor& values, const HostTensor& old, const HostTensor& scale, const HostTensor* zero,
                       const ScaleLayout& layout);

// Returns `value`; its gradient flows to `carrier` (of the same type), or nowhere without one.
Val StraightThrough(Val value, Val carrier = Val());
// Rounds scaled + zero (invalid: 0) to the grid, as floats; the gradient passes straight through inside the grid's
// range (Jacob et al., 2018, arXiv:1712.05877). Without `saturate`, 8-bit floats out of range become infinite or NaN.
Val FakeQuantize(Val scaled, Val zero, const Grid& grid, bool saturate = true);
// Casts values on the grid to the grid's type. GetFloatValues recovers the floats.
Val Quantized(Val on_grid, const Grid& grid);
// Returns the numbers of a quantized tensor as floats of `type`: the operand of Quantized, with its gradient, also
// through operators that move or select elements; a Cast if q has another source.
Val GetFloatValues(Val q, DType type);

// Import families: quantization of ai.onnx and com.microsoft; operators on quantized tensors; QONNX's quantizers.
std::span<const OnnxOp> QuantizeLinearImports();
std::span<const OnnxOp> QuantizedOpImports();
std::span<const OnnxOp> QonnxImports();

// The inputs of an operator that hold a quantized weight. The axis of scales is that of the operator. A bias is on the
// grid of the products that it is added to: its scale is the product of two, and its zero point 0.
struct QuantizedWeight {
  static constexpr size_t kNone = ~size_t{0};
  std::string_view domain, op_type;
  size_t tensor, scale, zero;
  size_t factor = kNone;      // a second scale
  bool scale_behind = false;  // the operator has none: `scale` is an input that the reader of files adds, with what its
                              // result is multiplied by
  bool packed = false;        // bytes that hold several numbers: not trained
};
const QuantizedWeight* FindQuantizedWeight(std::string_view domain, std::string_view op_type, size_t input);
// Returns the row of an operator that holds its weight in packed bytes, or null.
const QuantizedWeight* FindPackedWeight(std::string_view domain, std::string_view op_type);
// Returns the scale of a bias: scale·factor, for each element of the larger one.
HostTensor ProductOfScales(const HostTensor& scale, const HostTensor& factor);
// Returns the layout of scales along the weight of such an operator.
absl::StatusOr<ScaleLayout> WeightScaleLayout(const QuantizedWeight& weight, const Attrs& attrs, const Shape& tensor,
                                              const Shape& scale);

}  // namespace onnxtrain
