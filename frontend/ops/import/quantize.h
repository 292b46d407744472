// Helpers for imports of quantized operators.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Returns input i, a scale or zero point, which is then not trained. Invalid if absent.
Val FixedInput(ImportContext& c, size_t i);

// A quantized input as floats, with the real value (points − zero)·scale. `scale` and `zero` broadcast against the
// points; `zero` may be invalid.
struct QuantizedInput {
  Val points, scale, zero;

  Val Centered() const;  // points − zero
  Val Real() const { return Centered() * scale; }
};
// Reads a quantized input. If it is a weight stored as integers, trains a float weight on the grid instead. For `axis`
// and `block` see ScaleLayout::Create.
absl::StatusOr<QuantizedInput> ReadQuantized(ImportContext& c, size_t tensor, size_t scale, size_t zero,
                                             int64_t axis = 1, int64_t block = 0);
// Reads a bias on the grid of products whose scales are the inputs `scale` and `factor`, as floats. An int32
// initializer becomes a float weight. Invalid if absent.
absl::StatusOr<Val> ReadQuantizedBias(ImportContext& c, size_t bias, size_t scale, size_t factor);
// Quantizes x with the inputs `scale` and `zero` (uint8 if absent), per tensor or per index of axis 1.
absl::StatusOr<Val> Quantize(ImportContext& c, Val x, size_t scale, size_t zero);

// Returns the extents of the blocks of a matrix that share one scale; nothing if the scales have another shape. `axis`
// and `block` are attributes of DequantizeLinear.
std::optional<Shape> FindBlock(const Shape& matrix, const Shape& scale, int64_t axis, int64_t block);

// Returns the matrix in input `tensor`, integers that the graph reads as the file stores them, with its scales and zero
// points; nothing if the input is no such matrix. `axis` and `block` are as in ReadQuantized. The scale is 1 if `scale`
// is QuantizedWeight::kNone.
std::optional<QuantizedOperands> ReadStoredMatrix(ImportContext& c, size_t tensor, size_t scale, size_t zero,
                                                  int64_t axis, int64_t block);
// Returns the matrix that x, or with *transposed flipped its transpose, is dequantized from; nothing if there is none.
std::optional<QuantizedOperands> FindDequantized(Val x, bool* transposed);
// Unpacks bytes with 8/bits numbers each, the first in the lowest bits. Returns the first `count` numbers of each row.
HostTensor UnpackNumbers(const HostTensor& packed, int64_t bits, int64_t count);
// Returns true if `index` can select rows of the stored matrix; GatherRows dequantizes only these rows.
bool HasSeparateRows(const QuantizedMatrix& matrix);
ImportOr GatherRows(ImportContext& c, const QuantizedOperands& table, Val index);
// Returns true if input i is a weight, not a constant or a feed.
bool IsWeightInput(ImportContext& c, size_t i);

// A tensor rounded to a uint8 grid that its range determines.
struct DynamicRange {
  Val points, scale, zero;  // floats; scale and zero are scalars without a gradient
};
DynamicRange QuantizedDynamically(Val x);

}  // namespace onnxtrain
