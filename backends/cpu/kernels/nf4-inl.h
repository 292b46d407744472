// Looks up the values of NF4.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_NF4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_NF4_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_NF4_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_NF4_INL_H_
#endif

#include "frontend/ops/dequantize.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using Vec = hn::Vec<D>;

// Returns kNf4[i] for indices i in [0, 16). The table fills one vector of 512 bits or two of 256 bits.
[[gnu::always_inline]] inline Vec LookUpNf4(hn::Vec<hn::RebindToSigned<D>> index) {
  const D d;
  const float* table = kNf4.data();
#if HWY_HAVE_SCALABLE
  return hn::GatherIndex(d, table, index);
#else
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::TableLookupLanes(hn::LoadU(d, table), hn::IndicesFromVec(d, index));
  } else if constexpr (hn::MaxLanes(D()) == 8) {
    const hn::RebindToSigned<D> ints;
    const auto half = hn::IndicesFromVec(d, hn::And(index, hn::Set(ints, 7)));
    const Vec low = hn::TableLookupLanes(hn::LoadU(d, table), half);
    const Vec high = hn::TableLookupLanes(hn::LoadU(d, table + 8), half);
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(index, hn::Set(ints, 7))), high, low);
  } else {
    return hn::GatherIndex(d, table, index);
  }
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
