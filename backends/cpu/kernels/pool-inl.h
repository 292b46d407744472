#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

template <int kStep>
void Tap(const float* x, int64_t n, int32_t at, float* best, int32_t* where) {
#pragma GCC ivdep
  for (int32_t o = 0; o < static_cast<int32_t>(n); ++o) {
    const float v = x[o * kStep];
    const bool more = (v > best[o]) | (where[o] < 0) | ((v != v) & (best[o] == best[o]));
    best[o] = more ? v : best[o];
    where[o] = more ? at + o * kStep : where[o];
  }
}

}  // namespace

const PoolSimd& PoolTable() {
  static constexpr PoolSimd kTable = {{Tap<1>, Tap<2>}};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
