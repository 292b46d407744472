// Transposes tiles in vectors (vec-inl.h): kTile rows become columns of kTile lanes.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_TRANSPOSE_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_TRANSPOSE_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_TRANSPOSE_INL_H_
#endif

#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kTile = 16;

// Four rows of four elements, transposed.
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

// kTile rows; `columns` is a multiple of four.
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
