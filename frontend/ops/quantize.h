// Quantized tensors, for rows, import functions and the exporter.
//
// A quantized value is a number q of a small type, a point of a grid, with the real value (q − zero)·scale. A tensor
// has one scale and zero point, one per index of an axis, or one per block along an axis, as in ONNX's QuantizeLinear.
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

// Maps the elements of a quantized tensor to their scales.
class ScaleLayout {
 public:
  // Creates the map for a tensor and scales of these shapes. `axis` may be negative; `block` is the block size along
  // it, 0 without blocks. If there is a single block, the scales may lack its axis. Fails if the shapes do not match.
  static absl::StatusOr<ScaleLayout> Create(const Shape& tensor, const Shape& scale, int64_t axis, int64_t block);

  // Reshapes `param`, a scale or zero point, to broadcast against the tensor.
  Val Along(Val param) const;
  // Returns true if a zero point may have this shape: that of the scale, or one element. Along, Dequantized and
  // Requantized require it.
  bool Fits(const Shape& zero) const;
  // Returns the index of the scale of element i.
  int64_t operator()(int64_t i) const;

 private:
  enum class Kind : uint8_t { kTensor, kAxis, kBlock };
  Kind kind_ = Kind::kTensor;
  Shape shape_, scale_;  // shapes of the tensor and of the scales
  size_t axis_ = 0;
  int64_t block_ = 1, blocks_ = 1, inner_ = 1;
};

// Dequantized and Requantized compute in float32, or in float64 if `scale` or `values` are float64.
// Dequantized returns (q − zero)·scale; `zero` may be null.
HostTensor Dequantized(const HostTensor& q, const HostTensor& scale, const HostTensor* zero, const ScaleLayout& layout);
// Returns the grid points nearest to values/scale + zero. Keeps the number in `old` for elements that still equal the
// dequantized old number.
HostTensor Requantized(const HostTensor& values, const HostTensor& old, const HostTensor& scale, const HostTensor* zero,
                       const ScaleLayout& layout);

// Returns `value`. Its gradient is passed to `carrier`, which has the same type, or dropped if `carrier` is invalid.
Val StraightThrough(Val value, Val carrier = Val());
// Returns scaled + zero (invalid: 0), rounded to the grid, as floats. The gradient passes straight through within the
// range of the grid (Jacob et al., 2018, arXiv:1712.05877). Without `saturate`, 8-bit floats out of range become
// infinite or NaN.
Val FakeQuantize(Val scaled, Val zero, const Grid& grid, bool saturate = true);
// Casts values on the grid to the type of the grid. GetFloatValues recovers the floats.
Val Quantized(Val on_grid, const Grid& grid);
// Returns the numbers of a quantized tensor as floats of `type`: the operand of Quantized, which has a gradient, also
// if operators have moved or selected elements since. Returns a Cast if q was not made by Quantized.
Val GetFloatValues(Val q, DType type);

// Import families: quantization of ai.onnx and com.microsoft; operators on quantized tensors; QONNX's quantizers.
std::span<const OnnxOp> QuantizeLinearImports();
std::span<const OnnxOp> QuantizedOpImports();
std::span<const OnnxOp> QonnxImports();

// The inputs of an ONNX operator that hold a quantized weight. A bias has the grid of the products that it is added to:
// its scale is scale·factor and its zero point 0.
struct QuantizedWeight {
  static constexpr size_t kNone = ~size_t{0};
  std::string_view domain, op_type;
  size_t tensor, scale, zero;
  size_t factor = kNone;      // a second scale
  bool scale_behind = false;  // the operator has no scale: the reader of files adds the later factor as input `scale`
  bool packed = false;        // each byte holds several numbers; not trained
  bool in_place = false;      // the import reads a matrix that is not trained as the file stores it
};
const QuantizedWeight* FindQuantizedWeight(std::string_view domain, std::string_view op_type, size_t input);
// Returns the entry of an operator with a packed weight, or null.
const QuantizedWeight* FindPackedWeight(std::string_view domain, std::string_view op_type);
// Returns true if the operator has a bias that is quantized with the scale of the weight.
bool ScalesBias(const QuantizedWeight& weight);
// Returns the axis of a weight's matrix along which its scales extend, if there are several.
int64_t ScaleAxis(const QuantizedWeight& weight, const Attrs& attrs);
// Returns the scale of a bias: scale·factor, broadcast to the larger one.
HostTensor ProductOfScales(const HostTensor& scale, const HostTensor& factor);
// Returns the layout of the scales of the weight.
absl::StatusOr<ScaleLayout> WeightScaleLayout(const QuantizedWeight& weight, const Attrs& attrs, const Shape& tensor,
                                              const Shape& scale);

}  // namespace onnxtrain
