// Matrices of stored numbers, integers of 2, 4 or 8 bits or floats, for the rows Dequantize and MatMulDequantized,
// their kernels and import functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// The values that the 4-bit numbers of NF4 stand for, times the scale: quantiles of a normal distribution within
// [-1, 1], with an exact zero (QLoRA, Dettmers et al., arXiv:2305.14314, appendix E).
inline constexpr std::array<float, 16> kNf4 = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// A matrix [rows, columns] of stored numbers q with the real values (q − zero)·scale, or kNf4[q]·scale. Numbers of less
// than 8 bits are unsigned and packed along the columns, the first one in the lowest bits; each row begins with a byte.
// Numbers of 16 bits and more are floats. All elements of a block of block_rows × block_columns share one scale and
// zero point; blocks at the end of an axis may be cut.
struct QuantizedMatrix {
  int64_t rows = 0, columns = 0;
  int64_t row_bytes = 0;  // from a row to the next one
  int64_t bits = 8;       // of a number
  bool is_signed = false;
  int64_t block_rows = 1, block_columns = 1;
  int64_t zero_bits = 8;  // of integer zero points, which are packed as the numbers are
  double zero = 0;        // of all elements, if there is no tensor of zero points
  bool nf4 = false;       // numbers are indices into kNf4; there are no zero points

  int64_t scale_rows() const { return (rows + block_rows - 1) / block_rows; }
  int64_t scale_columns() const { return (columns + block_columns - 1) / block_columns; }
  int64_t zero_row_bytes() const { return (scale_columns() * zero_bits + 7) / 8; }

  bool has_floats() const { return bits > 8; }
  // Returns the attributes that rows store it in. Their width of floats is 0: casts may change the type.
  Attrs ToAttrs() const;
};

// Reads the attributes and types of a Dequantize node. `zero` may be null. Fails if they do not fit together.
absl::StatusOr<QuantizedMatrix> ReadQuantizedMatrix(const Attrs& attrs, const Type& q, const Type& scale,
                                                    const Type* zero);
// Reads those of a node whose operands start at input `first`.
absl::StatusOr<QuantizedMatrix> ReadQuantizedMatrix(const Graph& graph, const Node& node, size_t first);

// The operands of a quantized matrix. `zero` may be invalid.
struct QuantizedOperands {
  Val q, scale, zero;
  QuantizedMatrix matrix;
};
// Returns the operands of a matrix of floats, with a scale of 1.
QuantizedOperands FloatOperands(Val stored);
// Returns the floats of the matrix.
Val Dequantize(const QuantizedOperands& w, DType dtype);
// Returns x·W, or x·Wᵀ with `transposed`, for x of two or more axes.
Val MatMulDequantized(Val x, const QuantizedOperands& w, bool transposed);

// For rows whose operands are a quantized matrix, its scale and perhaps zero point, and more: the attributes of the
// matrix before the given ones, and the operands from input `first` on.
std::vector<AttrSpec> WithMatrixAttrs(const std::vector<AttrSpec>& own);
QuantizedOperands TakeQuantizedOperands(const DecomposeContext& c, size_t first);

// Returns the rows of both operators, for the family QuantizeOps.
std::vector<OpRow> MakeDequantizeRows();

}  // namespace onnxtrain
