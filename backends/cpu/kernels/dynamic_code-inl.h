#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void DequantizeBlock(const DynamicTables& tables, const uint8_t* codes, float scale, int64_t n, float* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto index = hn::PromoteTo(di, hn::LoadU(bytes, codes + i));
    hn::StoreU(hn::Mul(hn::GatherIndex(d, tables.values, index), hn::Set(d, scale)), d, y + i);
  }
  for (; i < n; ++i) y[i] = tables.values[codes[i]] * scale;
}

float MaxMagnitude(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, x + i)));
  float max = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) max = x[i] > max ? x[i] : -x[i] > max ? -x[i] : max;
  return max;
}

// The upper half of a magnitude selects a bucket, which holds at most one threshold.
void QuantizeBlock(const DynamicTables& tables, const float* x, float divisor, int64_t n, uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const auto zero = hn::Set(di, tables.zero), none = hn::Zero(di);
  const auto first = hn::Set(di, tables.first_bucket), last = hn::Set(di, tables.buckets - 1);
  const bool is_signed = tables.zero > 0;
  const auto encode = [&](auto v) __attribute__((always_inline)) {
    const auto magnitude = is_signed ? hn::Abs(v) : hn::Max(v, hn::Zero(d));
    const auto key = hn::Sub(hn::ShiftRight<16>(hn::BitCast(di, magnitude)), first);
    const auto below = hn::GatherIndex(di, tables.below, hn::Min(hn::Max(key, none), last));
    const auto above = hn::Gt(magnitude, hn::GatherIndex(d, tables.thresholds, below));
    const auto count = hn::Sub(below, hn::VecFromMask(di, hn::RebindMask(di, above)));
    const auto negative = hn::RebindMask(di, hn::Lt(v, hn::Zero(d)));
    const auto code = hn::Add(zero, count);
    return is_signed ? hn::IfThenElse(negative, hn::Max(hn::Sub(zero, count), none), code) : code;
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, divisor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::DemoteTo(bytes, encode(hn::Div(hn::LoadU(d, x + i), by))), bytes, codes + i);
  if (i == n) return;
  alignas(64) float rest[hn::MaxLanes(d)] = {};
  alignas(64) uint8_t encoded[hn::MaxLanes(d)];
  std::copy_n(x + i, n - i, rest);
  hn::StoreU(hn::DemoteTo(bytes, encode(hn::Div(hn::LoadU(d, rest), by))), bytes, encoded);
  std::copy_n(encoded, n - i, codes + i);
}

}  // namespace

const DynamicSimd& DynamicTable() {
  static constexpr DynamicSimd kTable = {DequantizeBlock, MaxMagnitude, QuantizeBlock};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
