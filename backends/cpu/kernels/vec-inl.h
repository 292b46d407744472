// VecF32 and VecU32: Highway vectors with operators, so that one source serves vectors and scalars. Functions over
// float, double and uint32_t have the same names.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_VEC_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_VEC_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_VEC_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

#define ALWAYS_INLINE [[gnu::always_inline]] inline

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kInf = __builtin_inff();

struct VecU32 {
  using Tag = hn::ScalableTag<uint32_t>;
  hn::Vec<Tag> v;

  VecU32() = default;
  ALWAYS_INLINE VecU32(hn::Vec<Tag> x) : v(x) {}
  ALWAYS_INLINE VecU32(uint32_t x) : v(hn::Set(Tag(), x)) {}
  ALWAYS_INLINE static VecU32 Load(const uint32_t* from) { return hn::LoadU(Tag(), from); }
  ALWAYS_INLINE void Store(uint32_t* to) const { hn::StoreU(v, Tag(), to); }
};

ALWAYS_INLINE VecU32 operator+(VecU32 a, VecU32 b) { return hn::Add(a.v, b.v); }
ALWAYS_INLINE VecU32 operator-(VecU32 a, VecU32 b) { return hn::Sub(a.v, b.v); }
ALWAYS_INLINE VecU32 operator&(VecU32 a, VecU32 b) { return hn::And(a.v, b.v); }
ALWAYS_INLINE VecU32 operator|(VecU32 a, VecU32 b) { return hn::Or(a.v, b.v); }

template <int kBits>
ALWAYS_INLINE VecU32 ShiftLeft(VecU32 a) {
  return hn::ShiftLeft<kBits>(a.v);
}
template <int kBits>
ALWAYS_INLINE uint32_t ShiftLeft(uint32_t a) {
  return a << kBits;
}
template <int kBits>
ALWAYS_INLINE VecU32 ShiftRight(VecU32 a) {
  return hn::ShiftRight<kBits>(a.v);
}
template <int kBits>
ALWAYS_INLINE uint32_t ShiftRight(uint32_t a) {
  return a >> kBits;
}

// The result of a comparison, one bit per lane.
struct MaskF32 {
  hn::Mask<hn::ScalableTag<float>> m;
};

ALWAYS_INLINE MaskF32 operator&(MaskF32 a, MaskF32 b) { return {hn::And(a.m, b.m)}; }
ALWAYS_INLINE MaskF32 operator|(MaskF32 a, MaskF32 b) { return {hn::Or(a.m, b.m)}; }

struct VecF32 {
  using Tag = hn::ScalableTag<float>;
  hn::Vec<Tag> v;

  ALWAYS_INLINE VecF32() : v(hn::Zero(Tag())) {}
  ALWAYS_INLINE VecF32(hn::Vec<Tag> x) : v(x) {}
  ALWAYS_INLINE VecF32(float x) : v(hn::Set(Tag(), x)) {}
  ALWAYS_INLINE static VecF32 Load(const float* from) { return hn::LoadU(Tag(), from); }
  ALWAYS_INLINE void Store(float* to) const { hn::StoreU(v, Tag(), to); }
};

constexpr int64_t kVecLanes = HWY_LANES(float);

ALWAYS_INLINE VecF32 operator+(VecF32 a, VecF32 b) { return hn::Add(a.v, b.v); }
ALWAYS_INLINE VecF32 operator-(VecF32 a, VecF32 b) { return hn::Sub(a.v, b.v); }
ALWAYS_INLINE VecF32 operator*(VecF32 a, VecF32 b) { return hn::Mul(a.v, b.v); }
ALWAYS_INLINE VecF32 operator/(VecF32 a, VecF32 b) { return hn::Div(a.v, b.v); }
ALWAYS_INLINE VecF32 operator-(VecF32 a) { return hn::Neg(a.v); }
ALWAYS_INLINE MaskF32 operator<(VecF32 a, VecF32 b) { return {hn::Lt(a.v, b.v)}; }
ALWAYS_INLINE MaskF32 operator>(VecF32 a, VecF32 b) { return {hn::Gt(a.v, b.v)}; }
ALWAYS_INLINE MaskF32 operator==(VecF32 a, VecF32 b) { return {hn::Eq(a.v, b.v)}; }
ALWAYS_INLINE MaskF32 operator!=(VecF32 a, VecF32 b) {
  return {hn::Not(hn::Eq(a.v, b.v))};
}  // hn::Ne may return false for NaN

template <typename F>
using UintOf = std::conditional_t<std::is_same_v<F, float>, uint32_t, VecU32>;

ALWAYS_INLINE uint32_t Bits(float x) { return __builtin_bit_cast(uint32_t, x); }
ALWAYS_INLINE VecU32 Bits(VecF32 x) { return hn::BitCast(VecU32::Tag(), x.v); }
ALWAYS_INLINE float FromBits(uint32_t x) { return __builtin_bit_cast(float, x); }
ALWAYS_INLINE VecF32 FromBits(VecU32 x) { return hn::BitCast(VecF32::Tag(), x.v); }

// Returns `yes` if the condition holds, else `no`.
template <typename Y, typename N>
requires std::is_arithmetic_v<Y> && std::is_arithmetic_v<N> ALWAYS_INLINE std::common_type_t<Y, N> Select(bool c, Y yes,
                                                                                                          N no) {
  return c ? yes : no;
}
ALWAYS_INLINE VecF32 Select(MaskF32 c, VecF32 yes, VecF32 no) { return hn::IfThenElse(c.m, yes.v, no.v); }
ALWAYS_INLINE VecU32 Select(MaskF32 c, VecU32 yes, VecU32 no) {
  return hn::IfThenElse(hn::RebindMask(VecU32::Tag(), c.m), yes.v, no.v);
}

// Returns a·b + c.
ALWAYS_INLINE VecF32 Fma(VecF32 a, VecF32 b, VecF32 c) { return hn::MulAdd(a.v, b.v, c.v); }
ALWAYS_INLINE float Fma(float a, float b, float c) {
#if HWY_NATIVE_FMA
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

ALWAYS_INLINE float VecAbs(float x) { return FromBits(Bits(x) & 0x7fffffffu); }
ALWAYS_INLINE VecF32 VecAbs(VecF32 x) { return hn::Abs(x.v); }
ALWAYS_INLINE double VecAbs(double x) { return __builtin_fabs(x); }
ALWAYS_INLINE VecF32 VecSqrt(VecF32 x) { return hn::Sqrt(x.v); }
ALWAYS_INLINE double VecSqrt(double x) { return __builtin_sqrt(x); }
ALWAYS_INLINE VecF32 VecFloor(VecF32 x) { return hn::Floor(x.v); }
ALWAYS_INLINE double VecFloor(double x) { return __builtin_floor(x); }
ALWAYS_INLINE VecF32 VecCeil(VecF32 x) { return hn::Ceil(x.v); }
ALWAYS_INLINE double VecCeil(double x) { return __builtin_ceil(x); }
ALWAYS_INLINE VecF32 VecRound(VecF32 x) { return hn::Round(x.v); }
ALWAYS_INLINE double VecRound(double x) { return __builtin_nearbyint(x); }
template <typename F>
ALWAYS_INLINE F CopySign(F x, F sign) {
  return FromBits((Bits(x) & 0x7fffffffu) | (Bits(sign) & 0x80000000u));
}

// Treat x as two's complement: divide by 2 or by 2^23, both rounded towards −∞, or convert to float.
ALWAYS_INLINE uint32_t HalveInt(uint32_t x) { return static_cast<uint32_t>(static_cast<int32_t>(x) >> 1); }
ALWAYS_INLINE uint32_t Exponent(uint32_t x) { return static_cast<uint32_t>(static_cast<int32_t>(x) >> 23); }
ALWAYS_INLINE float ConvertToFloat(uint32_t x) { return static_cast<float>(static_cast<int32_t>(x)); }

using IntTag = hn::ScalableTag<int32_t>;
ALWAYS_INLINE VecU32 HalveInt(VecU32 x) {
  return hn::BitCast(VecU32::Tag(), hn::ShiftRight<1>(hn::BitCast(IntTag(), x.v)));
}
ALWAYS_INLINE VecU32 Exponent(VecU32 x) {
  return hn::BitCast(VecU32::Tag(), hn::ShiftRight<23>(hn::BitCast(IntTag(), x.v)));
}
ALWAYS_INLINE VecF32 ConvertToFloat(VecU32 x) { return hn::ConvertTo(VecF32::Tag(), hn::BitCast(IntTag(), x.v)); }

// Computes y[i] = f(x[0][i], x[1][i] …) in vectors. y may be an input. Copies the remainder to a full vector, so that
// no memory beyond the rows is accessed.
template <int kInputs, typename Func>
ALWAYS_INLINE void ForVectors(const float* const (&x)[kInputs], int64_t n, float* y, Func f) {
  VecF32 in[kInputs];
  int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < kInputs; ++k) in[k] = VecF32::Load(x[k] + i);
    f(in).Store(y + i);
  }
  if (i == n) return;
  float last[kVecLanes] = {};
#pragma GCC unroll 4
  for (int k = 0; k < kInputs; ++k) {
    __builtin_memcpy(last, x[k] + i, (n - i) * sizeof(float));
    in[k] = VecF32::Load(last);
  }
  f(in).Store(last);
  __builtin_memcpy(y + i, last, (n - i) * sizeof(float));
}

#undef ALWAYS_INLINE

// The height of transposed tiles: kTile rows become columns of kTile lanes.
constexpr int64_t kTile = 16;

// Transposes four rows of four elements.
template <typename F>
[[gnu::always_inline]] inline void Transpose4(const F* x, int64_t row, F* to, int64_t width) {
  const hn::CappedTag<F, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + row), c = hn::LoadU(d, x + 2 * row),
             e = hn::LoadU(d, x + 3 * row);
  const auto ab = hn::BitCast(wide, hn::InterleaveLower(d, a, b)),
             ab_up = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
  const auto ce = hn::BitCast(wide, hn::InterleaveLower(d, c, e)),
             ce_up = hn::BitCast(wide, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab, ce)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce)), d, to + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, ab_up, ce_up)), d, to + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, ab_up, ce_up)), d, to + 3 * width);
}

// Transposes kTile rows; `columns` is a multiple of four.
template <typename F>
void TransposeTile(const F* x, int64_t row, int64_t columns, F* to, int64_t width) {
  for (int64_t k = 0; k < columns; k += 4) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kTile; j += 4) Transpose4(x + j * row + k, row, to + k * width + j, width);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
