// Converts between float32 (F: float or VecF32), bf16 in the low 16 bits of 32, and pairs of bf16 in 32 bits, the first
// one low, which dot product instructions read.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_BFLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_BFLOAT16_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_BFLOAT16_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_BFLOAT16_INL_H_
#endif

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rounds to nearest even; keeps NaN.
template <typename F>
[[gnu::always_inline]] inline UintOf<F> RoundToBFloat16(F x) {
  const UintOf<F> bits = Bits(x), high = ShiftRight<16>(bits);
  const UintOf<F> rounded = ShiftRight<16>(bits + 0x7fffu + (high & 1u));
  return Select(x != x, high | 0x40u, rounded);
}

[[gnu::always_inline]] inline auto FromBFloat16(auto x) { return FromBits(ShiftLeft<16>(x)); }

template <typename F>
[[gnu::always_inline]] inline UintOf<F> PackBf16Pair(F first, F second) {
  return RoundToBFloat16(first) | ShiftLeft<16>(RoundToBFloat16(second));
}

[[gnu::always_inline]] inline float ToFloat(float x) { return x; }
[[gnu::always_inline]] inline float ToFloat(BFloat16 x) { return FromBFloat16(uint32_t{x.bits}); }

[[gnu::always_inline]] inline void StoreRounded(float v, float* to) { *to = v; }
[[gnu::always_inline]] inline void StoreRounded(float v, BFloat16* to) {
  to->bits = static_cast<uint16_t>(RoundToBFloat16(v));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
