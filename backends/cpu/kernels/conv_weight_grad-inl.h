#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, 16>;

// Keeps all sums in registers, at most 24 of the 32.
template <int kColumns, int kVectors>
void SumTile(std::span<const PixelRow> rows, int64_t x_step, int64_t dy_step, int64_t to_step, float* to) {
  const D d;
  hn::Vec<D> sum[kColumns][kVectors];
  for (auto& column : sum) {
    for (auto& v : column) v = hn::Zero(d);
  }
  for (const PixelRow& row : rows) {
    const float *x = row.x, *dy = row.dy;
    for (int64_t i = 0; i < row.pixels; ++i, x += x_step, dy += dy_step) {
      hn::Vec<D> y[kVectors];
      for (int v = 0; v < kVectors; ++v) y[v] = hn::LoadU(d, dy + 16 * v);
      for (int c = 0; c < kColumns; ++c) {
        for (int v = 0; v < kVectors; ++v) sum[c][v] = hn::MulAdd(hn::Set(d, x[c]), y[v], sum[c][v]);
      }
    }
  }
  for (int c = 0; c < kColumns; ++c, to += to_step) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::Add(hn::LoadU(d, to + 16 * v), sum[c][v]), d, to + 16 * v);
  }
}

template <int kVectors>
constexpr TileColumns kTiles = {SumTile<1, kVectors>, SumTile<2, kVectors>, SumTile<3, kVectors>,
                                SumTile<4, kVectors>, SumTile<5, kVectors>, SumTile<6, kVectors>};
constexpr WeightGradSimd kSimd = {kTiles<2>, kTiles<4>};

#endif

}  // namespace

const WeightGradSimd* WeightGradTable() {
#if HWY_TARGET <= HWY_AVX3
  return &kSimd;
#else
  return nullptr;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
