// Casts between float32 and 16-bit floats. As UnarySpan, but y must not be x.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_HALF_CAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_HALF_CAST_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_HALF_CAST_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_HALF_CAST_INL_H_
#endif

#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

void WidenBFloat16(const void* x, void* y, int64_t n, const float*) {
  const auto* in = static_cast<const uint16_t*>(x);
  auto* out = static_cast<float*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = FromBFloat16(in[i]);
}

void NarrowBFloat16(const void* x, void* y, int64_t n, const float*) {
  const auto* in = static_cast<const float*>(x);
  auto* out = static_cast<uint16_t*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint16_t>(RoundToBFloat16(in[i]));
}

constexpr uint32_t kSign = 0x80000000, kFloatInfinity = 0x7f800000;

// Rebiases the exponent by a multiplication, which also handles denormal numbers.
void WidenHalf(const void* x, void* y, int64_t n, const float*) {
  const auto* in = static_cast<const uint16_t*>(x);
  auto* out = static_cast<float*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = in[i] & 0x7fffu, sign = static_cast<uint32_t>(in[i] & 0x8000u) << 16;
    const uint32_t finite = Bits(FromBits(magnitude << 13) * 0x1p112F), special = kFloatInfinity | (magnitude << 13);
    out[i] = FromBits(sign | (magnitude >= 0x7c00 ? special : finite));
  }
}

// Narrows float32 to float16, with the contract of NarrowBFloat16. Rounds denormal results by adding a number whose
// last bit has their weight.
void NarrowHalf(const void* x, void* y, int64_t n, const float*) {
  constexpr uint32_t kOverflow = 0x477ff000, kSmallestNormal = 0x38800000, kMagic = 0x3f000000;
  const auto* in = static_cast<const float*>(x);
  auto* out = static_cast<uint16_t*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = Bits(in[i]), magnitude = bits & ~kSign;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    const uint32_t tiny = Bits(FromBits(magnitude) + FromBits(kMagic)) - kMagic;
    const uint32_t special = magnitude > kFloatInfinity ? 0x7e00 : 0x7c00;
    const uint32_t half = magnitude >= kOverflow ? special : magnitude < kSmallestNormal ? tiny : normal;
    out[i] = static_cast<uint16_t>(half | (bits & kSign) >> 16);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
