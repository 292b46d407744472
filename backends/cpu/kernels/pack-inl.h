#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "backends/cpu/kernels/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// Prefetches a row of the next block. A block has a few cache lines per row, too far apart for the hardware prefetcher:
// packing runs at 20–30 GB/s, with prefetches at 45.
[[gnu::always_inline]] inline void FetchNext(const float* x, int64_t length) {
  for (int64_t i = 0; i < length; i += 16) __builtin_prefetch(x + length + i, 0, 2);
}

[[gnu::always_inline]] inline void PackRow(const float* x, int64_t, int64_t width, float* to) {
  std::copy_n(x, width, to);
}

// Interleaves two rows of x, `row` elements apart, as pairs of bf16.
[[gnu::always_inline]] inline void PackRow(const float* x, int64_t row, int64_t width, uint32_t* to) {
  FetchNext(x + row, width);
#pragma GCC ivdep
  for (int64_t j = 0; j < width; ++j) to[j] = PackBf16Pair(x[j], x[row + j]);
}

template <typename T>
void PackRows(const float* x, int64_t row, int64_t height, int64_t width, T* to) {
  for (int64_t i = 0; i < height; ++i, x += kRowsIn<T> * row, to += width) {
    FetchNext(x, width);
    PackRow(x, row, width, to);
  }
}

void PackTile(const float* x, int64_t column, float* to, int64_t width) { TransposeTile(x, column, kTile, to, width); }

void PackTile(const float* x, int64_t column, uint32_t* to, int64_t width) {
  uint32_t tile[kTile * kTile];
  for (int64_t c = 0; c < kTile; ++c, x += column) {
#pragma GCC ivdep
    for (int64_t p = 0; p < kTile; ++p) tile[c * kTile + p] = PackBf16Pair(x[2 * p], x[2 * p + 1]);
  }
  TransposeTile(tile, kTile, kTile, to, width);
}

template <typename T>
void PackColumns(const float* x, int64_t column, int64_t height, int64_t width, T* to) {
  for (int64_t j = 0; j < width; ++j) FetchNext(x + j * column, kRowsIn<T> * height);
  for (int64_t i = 0; i < height; i += kTile) {
    for (int64_t j = 0; j < width; j += kTile)
      PackTile(x + j * column + kRowsIn<T> * i, column, to + i * width + j, width);
  }
}

}  // namespace

const PackSimd& PackTable() {
  static constexpr PackSimd kTable = {{PackRows<float>, PackColumns<float>},
                                      {PackRows<uint32_t>, PackColumns<uint32_t>}};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
