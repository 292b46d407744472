#include "backends/cpu/kernels/attention_simd.h"

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/attention-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/attention-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(PairAttentionTable);

HWY_EXPORT(FloatAttentionTable);

template <>
const AttentionSimd<float>& GetAttentionSimd() {
  return HWY_DYNAMIC_DISPATCH(FloatAttentionTable)();
}
template <>
const AttentionSimd<uint16_t>& GetAttentionSimd() {
  return HWY_DYNAMIC_DISPATCH(PairAttentionTable)();
}

}  // namespace onnxtrain::cpu
