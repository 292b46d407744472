// Loads and stores elements of float32 or bf16 as float32.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_ELEMENT_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_ELEMENT_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_ELEMENT_INL_H_
#endif

#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "frontend/base/small_float.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

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
