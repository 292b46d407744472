#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Vec = hn::Vec<D>;

// The sums of a tile take 24 of 32 vector registers, or 12 of 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kDotRows = 6, kVectors = 4;
#else
constexpr int kDotRows = 3, kVectors = 2;
#endif
constexpr int kSumRows = 6;

// Adds the blocks of four lanes to one.
template <typename Tag>
auto AddBlocks(Tag d, hn::Vec<Tag> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<Tag> half;
    return AddBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Returns the sum of the lanes for each of four vectors.
[[gnu::always_inline]] inline hn::Vec<hn::Full128<float>> AddLanes(const Vec* v) {
  const D d;
  const hn::Repartition<double, D> pairs;
  const auto fold = [&](Vec a, Vec b) { return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  const auto low = hn::BitCast(pairs, fold(v[0], v[1])), high = hn::BitCast(pairs, fold(v[2], v[3]));
  return AddBlocks(d, hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                              hn::BitCast(d, hn::InterleaveUpper(pairs, low, high))));
}

template <int kHeight>
void DotTile(const ProductTile& tile) {
  const D d;
  const hn::Full128<float> four;
  const ProductTile t = tile;  // a local copy stays in registers: the stores below cannot alias it
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sum[kHeight][kDotColumns];
#pragma GCC unroll 6
  for (int i = 0; i < kHeight; ++i) {
    for (Vec& v : sum[i]) v = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + lanes <= t.depth; k += lanes) {
    Vec w[kDotColumns];
    for (int j = 0; j < kDotColumns; ++j) w[j] = hn::LoadU(d, t.w + j * t.w_step + k);
#pragma GCC unroll 6
    for (int i = 0; i < kHeight; ++i) {
      const Vec x = hn::LoadU(d, t.x + i * t.x_step + k);
      for (int j = 0; j < kDotColumns; ++j) sum[i][j] = hn::MulAdd(x, w[j], sum[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kHeight; ++i) {
    float sums[kDotColumns];
    hn::StoreU(AddLanes(sum[i]), four, sums);
    for (int64_t rest = k; rest < t.depth; ++rest) {
      for (int j = 0; j < kDotColumns; ++j) sums[j] += t.x[i * t.x_step + rest] * t.w[j * t.w_step + rest];
    }
    float* y = t.y + i * t.y_step;
    if (t.columns == kDotColumns) {
      const auto all = hn::LoadU(four, sums);
      hn::StoreU(t.adds ? hn::Add(hn::LoadU(four, y), all) : all, four, y);
    } else {
      for (int64_t j = 0; j < t.columns; ++j) y[j] = t.adds ? y[j] + sums[j] : sums[j];
    }
  }
}

template <int kHeight>
void SumTile(const ProductTile& tile) {
  const D d;
  const ProductTile t = tile;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < kPanelColumns; j += kVectors * lanes) {
    Vec sum[kHeight][kVectors];
#pragma GCC unroll 6
    for (int i = 0; i < kHeight; ++i) {
      for (int v = 0; v < kVectors; ++v)
        sum[i][v] = t.adds ? hn::LoadU(d, t.y + i * t.y_step + j + v * lanes) : hn::Zero(d);
    }
    const float *x = t.x, *w = t.w + j;
    for (int64_t k = 0; k < t.depth; ++k, ++x, w += t.w_step) {
      Vec row[kVectors];
      for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, w + v * lanes);
#pragma GCC unroll 6
      for (int i = 0; i < kHeight; ++i) {
        const Vec factor = hn::Set(d, x[i * t.x_step]);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(factor, row[v], sum[i][v]);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < kHeight; ++i) {
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, t.y + i * t.y_step + j + v * lanes);
    }
  }
}

}  // namespace

const TileSimd& TileTable() {
  static constexpr TileSimd kTable = {.dot_rows = kDotRows,
                                      .sum_rows = kSumRows,
                                      .dot = {DotTile<1>, DotTile<2>, DotTile<3>, DotTile<4>, DotTile<5>, DotTile<6>},
                                      .sum = {SumTile<1>, SumTile<2>, SumTile<3>, SumTile<4>, SumTile<5>, SumTile<6>}};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
