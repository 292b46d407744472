// Quantizes matrices of floats into blocks of stored numbers (dequantize.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/dequantize.h"

namespace onnxtrain {

// A quantized matrix in host memory. Copies share the bytes.
struct StoredBlocks {
  QuantizedMatrix matrix;
  HostTensor q;                         // [rows, row_bytes]
  HostTensor scale;                     // [scale_rows, scale_columns]
  std::optional<HostTensor> zero = {};  // as the operand of MatMulDequantized; nullopt: matrix.zero for all
  double error = 0;  // ‖Ŵ − W‖ / ‖W‖ of the floats W that were quantized; 0 for a zero matrix

  int64_t bytes() const;
};

// How a weight is quantized: the type of its numbers, and the inputs of one output that share a scale.
struct BlockFormat {
  std::string_view name;
  int64_t bits;
  int64_t inputs;  // 0: all inputs of an output
  bool is_signed, has_zero, nf4;
};
// Returns "int4", "int8" or "nf4"; null for other names.
//   int4: blocks of 32 with scale (max − min) / 15 and zero point −min / scale, rounded, of a range that includes 0, as
//     com.microsoft.MatMulNBits has them. For normal weights, the error is 6 % smaller than without zero points.
//   int8: one scale for each output, the smallest one with which -128…127 hold its weights.
//   nf4: blocks of 64; the scale is the largest magnitude, the number that of the nearest value of kNf4.
const BlockFormat* FindBlockFormat(std::string_view name);

// Writes `count` rows of a matrix from `row` on to `out`.
using ReadRows = std::function<void(int64_t row, int64_t count, std::span<float> out)>;

// Quantizes a matrix whose outputs are its rows, or its columns. A number is w / scale + zero, rounded half away from
// zero and clipped. Fails on floats that are not finite.
absl::StatusOr<StoredBlocks> QuantizeBlocks(const BlockFormat& format, int64_t rows, int64_t columns,
                                            bool outputs_first, const ReadRows& read);

// The tensors that RequantizeBlocks may change besides the numbers.
struct FreeEncodings {
  bool scale = true, zero = true;  // no new zero points without new scales
};
// Replaces the numbers by those of other floats in the same blocks, with new scales and zero points where they lower
// the error. A zero point that all blocks share stays, and so do blocks that hold the floats already. Sets the error.
absl::Status RequantizeBlocks(const ReadRows& read, FreeEncodings free, StoredBlocks* blocks);

// Writes `count` rows of the real values from `row` on to `out`. The numbers are integers.
void ReadBlocks(const StoredBlocks& blocks, int64_t row, int64_t count, std::span<float> out);

}  // namespace onnxtrain
