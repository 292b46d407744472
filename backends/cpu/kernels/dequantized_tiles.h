// Multiplies rows by parts of a quantized matrix, which are dequantized tile by tile: no buffer has the size of the
// matrix. A thread converts a tile that fits its cache to float32 and multiplies all rows by it.
#pragma once

#include <algorithm>

#include "backends/cpu/kernels/dequantize.h"

namespace onnxtrain::cpu {

struct TileSimd;

// Computes parts of y = x·W, or x·Wᵀ with `transposed`, for a W that begins at any row of a stored matrix. Rows of x
// have k elements, those of y n. The order of sums depends on nothing else.
class TileMultiplier {
 public:
  static constexpr int64_t kRowStep = 6;  // rows of the largest tile of y

  // The columns that all parts but the last begin and end at, and the most that a part has for efficiency.
  struct Panels {
    int64_t step, most;
  };
  static Panels PanelsOf(bool transposed);

  // Parts have at most `columns` columns.
  TileMultiplier(RowReader<float> reader, int64_t k, int64_t n, int64_t columns, bool transposed);

  const RowReader<float>& reader() const { return reader_; }
  size_t scratch_bytes() const;  // of a thread

  struct Part {
    const float* x;  // the first row
    float* y;        // the first row
    int64_t rows, column, columns;
    int64_t matrix_row = 0;  // the row of the stored matrix that W begins at
  };
  void Multiply(const RowReader<float>::Operands& in, const Part& part, std::byte* scratch) const;

 private:
  using Reader = RowReader<float>;

  int64_t TileFloats() const { return (transposed_ ? columns_ : depth_) * tile_step_; }
  int64_t EdgeFloats() const;
  Reader::Scratch MakeScratch(std::byte* memory) const;
  void MultiplyRows(const Reader::Operands& in, const Part& part, std::byte* memory) const;
  void MultiplyColumns(const Reader::Operands& in, const Part& part, std::byte* memory) const;
  struct Depth {
    int64_t begin, count;
  };
  void MultiplyPanel(const Part& part, Depth k, const float* panel, float* edge) const;
  void StoreEdge(const float* edge, int64_t rows, int64_t columns, bool adds, float* y) const;

  const TileSimd& simd_;
  Reader reader_;
  int64_t k_, n_;
  int64_t columns_, depth_;      // columns of a tile; elements of a sum per tile
  int64_t segment_, tile_step_;  // elements of a row dequantized at once; stride of the rows of a tile
  bool transposed_;
};

}  // namespace onnxtrain::cpu
