#include <type_traits>

#include "backends/cpu/kernels/nf4-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

void UnpackNibbles(const uint8_t* packed, int64_t n, uint8_t* numbers) {
  const hn::Full128<uint8_t> d;
  const auto mask = hn::Set(d, 15);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const auto pairs = hn::LoadU(d, packed + i / 2);
    const auto low = hn::And(pairs, mask), high = hn::ShiftRight<4>(pairs);
    hn::StoreU(hn::InterleaveLower(d, low, high), d, numbers + i);
    hn::StoreU(hn::InterleaveUpper(d, low, high), d, numbers + i + 16);
  }
  for (; i < n; ++i) numbers[i] = packed[i / 2] >> (i % 2 * 4) & 15;
}

template <typename T>
Vec LoadNumbers(const T* numbers) {
  const D d;
  if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, D> halves;
    return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(numbers)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<uint16_t, D> bits;
    const hn::Rebind<uint32_t, D> words;
    const auto high = hn::PromoteTo(words, hn::LoadU(bits, reinterpret_cast<const uint16_t*>(numbers)));
    return hn::BitCast(d, hn::ShiftLeft<16>(high));
  } else if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(d, numbers);
  } else if constexpr (std::is_same_v<T, Nf4>) {
    const hn::Rebind<uint8_t, D> bytes;
    const hn::RebindToSigned<D> ints;
    return LookUpNf4(hn::PromoteTo(ints, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(numbers))));
  } else {
    const hn::Rebind<T, D> bytes;
    const hn::Rebind<int32_t, D> ints;
    return hn::ConvertTo(d, hn::PromoteTo(ints, hn::LoadU(bytes, numbers)));
  }
}

template <typename T>
void ScaleRuns(const uint8_t* numbers, const NumberRuns& r, float* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* q = reinterpret_cast<const T*>(numbers);
  int64_t i = 0;
  for (int64_t b = 0, end = std::min(r.first, r.n); i < r.n; ++b, end = std::min(end + r.length, r.n)) {
    const Vec zero = hn::Set(d, r.zero[b]), scale = hn::Set(d, r.scale[b]);
    for (; i + lanes <= end; i += lanes) hn::StoreU(hn::Mul(hn::Sub(LoadNumbers(q + i), zero), scale), d, y + i);
    for (; i < end; ++i) y[i] = (ToNumber<float>(q[i]) - r.zero[b]) * r.scale[b];
  }
}

template <typename T>
void ScaleColumns(const uint8_t* numbers, const NumberRuns& r, float* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* q = reinterpret_cast<const T*>(numbers);
  int64_t i = 0;
  for (; i + lanes <= r.n; i += lanes) {
    const Vec centered = hn::Sub(LoadNumbers(q + i), hn::LoadU(d, r.zero + i));
    hn::StoreU(hn::Mul(centered, hn::LoadU(d, r.scale + i)), d, y + i);
  }
  for (; i < r.n; ++i) y[i] = (ToNumber<float>(q[i]) - r.zero[i]) * r.scale[i];
}

}  // namespace

const DequantizeSimd& DequantizeTable() {
  static constexpr DequantizeSimd kTable = {
      .unpack_nibbles = UnpackNibbles,
      .scale_runs = {ScaleRuns<uint8_t>, ScaleRuns<int8_t>, ScaleRuns<Float16>, ScaleRuns<BFloat16>, ScaleRuns<float>,
                     ScaleRuns<Nf4>},
      .scale_columns = {ScaleColumns<uint8_t>, ScaleColumns<int8_t>, ScaleColumns<Float16>, ScaleColumns<BFloat16>,
                        ScaleColumns<float>, ScaleColumns<Nf4>}};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
