// Products by tiles of a dequantized matrix.
#include "backends/cpu/kernels/dequantized_tiles.h"

#include <algorithm>
#include <array>
#include <utility>

namespace onnxtrain::cpu {

// Operands of y = x·w or y += x·w over `depth` elements, for a fixed number of rows of x.
struct ProductTile {
  const float *x, *w;
  int64_t x_step, w_step, depth;  // strides of the rows of x and w
  float* y;
  int64_t y_step, columns;
  bool adds;
};

inline constexpr int kMaxTileRows = TileMultiplier::kRowStep, kDotColumns = 4;
inline constexpr int64_t kPanelColumns = 64;

using TileFunctions = std::array<void (*)(const ProductTile&), kMaxTileRows>;  // for 1, 2 … rows of x

struct TileSimd {
  int dot_rows, sum_rows;  // rows of the largest tile
  TileFunctions dot;       // w [columns, depth], at most kDotColumns; reads kDotColumns rows of it
  TileFunctions sum;       // w [depth, kPanelColumns]; reads and writes kPanelColumns columns
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/dequantized_tiles-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/dequantized_tiles-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(TileTable);
namespace {

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Tiles have 256 KiB at most. Padding maps the rows of a tile to different cache sets.
constexpr int64_t kDotDepth = 1024, kDotGroup = 64, kSumDepth = 128, kSumGroup = 512, kPadding = 16;

}  // namespace

TileMultiplier::Panels TileMultiplier::PanelsOf(bool transposed) {
  return transposed ? Panels{kDotColumns, kDotGroup} : Panels{kPanelColumns, kSumGroup};
}

TileMultiplier::TileMultiplier(RowReader<float> reader, int64_t k, int64_t n, int64_t columns, bool transposed)
    : simd_(HWY_DYNAMIC_DISPATCH(TileTable)()),
      reader_(std::move(reader)),
      k_(k),
      n_(n),
      columns_(RoundUp(columns, PanelsOf(transposed).step)),
      depth_(transposed ? kDotDepth : kSumDepth),
      segment_(transposed ? std::min(depth_, k) : columns_),
      tile_step_(RoundUp(segment_, kPadding) + kPadding),
      transposed_(transposed) {}

int64_t TileMultiplier::EdgeFloats() const { return transposed_ ? 0 : kMaxTileRows * kPanelColumns; }

size_t TileMultiplier::scratch_bytes() const {
  return Aligned64((TileFloats() + EdgeFloats()) * sizeof(float)) + Reader::ScratchBytes(segment_);
}

RowReader<float>::Scratch TileMultiplier::MakeScratch(std::byte* memory) const {
  return Reader::MakeScratch(memory + Aligned64((TileFloats() + EdgeFloats()) * sizeof(float)), segment_);
}

void TileMultiplier::Multiply(const Reader::Operands& in, const Part& part, std::byte* scratch) const {
  transposed_ ? MultiplyRows(in, part, scratch) : MultiplyColumns(in, part, scratch);
}

// Computes a part of y = x·Wᵀ.
void TileMultiplier::MultiplyRows(const Reader::Operands& in, const Part& part, std::byte* memory) const {
  auto* tile = reinterpret_cast<float*>(memory);
  auto scratch = MakeScratch(memory);
  const int64_t first = part.matrix_row + part.column;
  for (int64_t k = 0; k < k_; k += depth_) {
    const int64_t depth = std::min(depth_, k_ - k);
    for (int64_t j = 0; j < part.columns; ++j) reader_.Read(in, first + j, k, depth, &scratch, tile + j * tile_step_);
    for (int64_t i = 0; i < part.rows; i += simd_.dot_rows) {
      for (int64_t j = 0; j < part.columns; j += kDotColumns) {
        const int64_t rows = std::min<int64_t>(simd_.dot_rows, part.rows - i);
        simd_.dot[rows - 1]({.x = part.x + i * k_ + k,
                             .w = tile + j * tile_step_,
                             .x_step = k_,
                             .w_step = tile_step_,
                             .depth = depth,
                             .y = part.y + i * n_ + part.column + j,
                             .y_step = n_,
                             .columns = std::min<int64_t>(kDotColumns, part.columns - j),
                             .adds = k > 0});
      }
    }
  }
}

// Computes a part of y = x·W.
void TileMultiplier::MultiplyColumns(const Reader::Operands& in, const Part& part, std::byte* memory) const {
  auto* tile = reinterpret_cast<float*>(memory);
  auto scratch = MakeScratch(memory);
  for (int64_t k = 0; k < k_; k += depth_) {
    const int64_t depth = std::min(depth_, k_ - k);
    for (int64_t i = 0; i < depth; ++i)
      reader_.Read(in, part.matrix_row + k + i, part.column, part.columns, &scratch, tile + i * tile_step_);
    for (int64_t j = 0; j < part.columns; j += kPanelColumns) {
      Part panel = part;
      panel.column += j;
      panel.columns = std::min(kPanelColumns, part.columns - j);
      MultiplyPanel(panel, {k, depth}, tile + j, tile + TileFloats());
    }
  }
}

void TileMultiplier::MultiplyPanel(const Part& part, Depth k, const float* panel, float* edge) const {
  const bool whole = part.columns == kPanelColumns;
  for (int64_t i = 0; i < part.rows; i += simd_.sum_rows) {
    const int64_t rows = std::min<int64_t>(simd_.sum_rows, part.rows - i);
    float* y = part.y + i * n_ + part.column;
    simd_.sum[rows - 1]({.x = part.x + i * k_ + k.begin,
                         .w = panel,
                         .x_step = k_,
                         .w_step = tile_step_,
                         .depth = k.count,
                         .y = whole ? y : edge,
                         .y_step = whole ? n_ : kPanelColumns,
                         .columns = kPanelColumns,
                         .adds = whole && k.begin > 0});
    if (!whole) StoreEdge(edge, rows, part.columns, k.begin > 0, y);
  }
}

void TileMultiplier::StoreEdge(const float* edge, int64_t rows, int64_t columns, bool adds, float* y) const {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) y[i * n_ + j] = edge[i * kPanelColumns + j] + (adds ? y[i * n_ + j] : 0.0f);
  }
}

}  // namespace onnxtrain::cpu
