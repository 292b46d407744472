// The products of attention without tiles, and pairs of bf16.

// Compiled once per instruction set: Highway flips HWY_TARGET_TOGGLE before each pass.
#if defined(ONNXTRAIN_BACKENDS_CPU_KERNELS_ATTENTION_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONNXTRAIN_BACKENDS_CPU_KERNELS_ATTENTION_PRODUCTS_INL_H_
#undef ONNXTRAIN_BACKENDS_CPU_KERNELS_ATTENTION_PRODUCTS_INL_H_
#else
#define ONNXTRAIN_BACKENDS_CPU_KERNELS_ATTENTION_PRODUCTS_INL_H_
#endif

#include "backends/cpu/kernels/attention_simd.h"
#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

// VecOf<F> is the vector of elements F: floats, or pairs of bf16 in 32 bits.
template <typename F>
using VecOf = std::conditional_t<std::is_same_v<F, float>, VecF32, VecU32>;

// Returns acc + x·row; for pairs of bf16, adds both products.
[[gnu::always_inline]] inline VecF32 MulAddPairs(VecF32 acc, VecF32 x, VecF32 row) { return Fma(x, row, acc); }
inline float MulAddPairs(float acc, float a, float b) { return Fma(a, b, acc); }
inline float MulAddPairs(float acc, uint32_t a, uint32_t b) {
  return acc + FromBFloat16(a) * FromBFloat16(b) + FromBFloat16(a >> 16) * FromBFloat16(b >> 16);
}

// Highway lacks these instructions. Kernels of bf16 run only on processors that have them.
#if HWY_TARGET == HWY_AVX3
[[gnu::always_inline]] inline VecF32 MulAddPairs(VecF32 acc, VecU32 x, VecU32 row) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v.raw) : "v"(x.v.raw), "v"(row.v.raw));
  return acc;
}
using Halves = hn::Vec<hn::Rebind<uint16_t, VecF32::Tag>>;
[[gnu::always_inline]] inline Halves Rounded(VecF32 x) {
  Halves y;
  asm("vcvtneps2bf16 %1, %0" : "=v"(y.raw) : "v"(x.v.raw));
  return y;
}
// Rounds two rows to bf16.
class TwoRows {
 public:
  [[gnu::always_inline]] TwoRows(VecF32 first, VecF32 second) {
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both_) : "v"(first.v.raw), "v"(second.v.raw));
  }
  // Returns pairs of an element of the first row and one of the second.
  [[gnu::always_inline]] VecU32 Pairs() const {
    const VecU32 lane = hn::Iota(VecU32::Tag(), 0), order = lane + ShiftLeft<16>(lane) + (16u << 16);
    return hn::Vec<VecU32::Tag>{_mm512_permutexvar_epi16(order.v.raw, both_)};
  }
  [[gnu::always_inline]] void StoreFirst(uint16_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(both_));
  }
  [[gnu::always_inline]] void StoreSecond(uint16_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_extracti64x4_epi64(both_, 1));
  }

 private:
  __m512i both_;
};
#else
[[gnu::always_inline]] inline VecF32 MulAddPairs(VecF32 acc, VecU32 x, VecU32 row) {
  const VecF32 first = Fma(FromBits(ShiftLeft<16>(x)), FromBits(ShiftLeft<16>(row)), acc);
  return Fma(FromBits(x & 0xffff0000u), FromBits(row & 0xffff0000u), first);
}
[[gnu::always_inline]] inline auto Rounded(VecF32 x) {
  return hn::TruncateTo(hn::Rebind<uint16_t, VecF32::Tag>(), RoundToBFloat16(x).v);
}
#endif

// Stores a vector in the element type of `to`.
[[gnu::always_inline]] inline void Put(VecF32 x, float* to) { x.Store(to); }
[[gnu::always_inline]] inline void Put(VecF32 x, uint16_t* to) {
  hn::StoreU(Rounded(x), hn::Rebind<uint16_t, VecF32::Tag>(), to);
}
inline void Put(float x, float* to) { *to = x; }
inline void Put(float x, uint16_t* to) { *to = static_cast<uint16_t>(RoundToBFloat16(x)); }

#if HWY_TARGET != HWY_AVX3
class TwoRows {
 public:
  [[gnu::always_inline]] TwoRows(VecF32 first, VecF32 second) : first_(first), second_(second) {}
  [[gnu::always_inline]] VecU32 Pairs() const { return PackBf16Pair(first_, second_); }
  [[gnu::always_inline]] void StoreFirst(uint16_t* to) const { Put(first_, to); }
  [[gnu::always_inline]] void StoreSecond(uint16_t* to) const { Put(second_, to); }

 private:
  VecF32 first_, second_;
};
#endif

// Computes a block of kHeight × (kWidth·lanes) elements of c, whose sums over k stay in registers.
template <int kHeight, int kWidth, typename F>
void MultiplyBlock(const Matrix<const F>& a, const F* b, int64_t ldb, float* c, int64_t ldc, int64_t k, bool add) {
  VecF32 acc[kHeight][kWidth];
  for (int64_t p = 0; p < k; ++p) {
    VecOf<F> row[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) row[v] = VecOf<F>::Load(b + p * ldb + v * kVecLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kHeight; ++i) {
      const VecOf<F> x = a.data[i * a.row + p * a.column];
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) acc[i][v] = MulAddPairs(acc[i][v], x, row[v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      float* to = c + i * ldc + v * kVecLanes;
      (add ? VecF32::Load(to) + acc[i][v] : acc[i][v]).Store(to);
    }
  }
}

// Computes the last columns of c, fewer than the lanes of a vector.
template <typename F>
void MultiplyRemainder(const Matrix<const F>& a, const F* b, int64_t ldb, float* c, int64_t ldc, int64_t m, int64_t n,
                       int64_t k, bool add) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = add ? c[i * ldc + j] : 0.0f;
      for (int64_t p = 0; p < k; ++p) sum = MulAddPairs(sum, a.data[i * a.row + p * a.column], b[p * ldb + j]);
      c[i * ldc + j] = sum;
    }
  }
}

constexpr int kBlockRows = 6, kBlockVecs = HWY_CAP_GE512 ? 4 : 2;  // bounded by the number of registers
constexpr int kRowVecs = 8;                                        // of a single row

template <int kWidth, typename F>
void Columns(Matrix<const F> a, const F* b, int64_t ldb, float* c, int64_t ldc, int64_t m, int64_t k, bool add) {
  int64_t i = 0;
  if constexpr (kWidth <= kBlockVecs) {
    for (; i + kBlockRows <= m; i += kBlockRows, a.data += kBlockRows * a.row)
      MultiplyBlock<kBlockRows, kWidth>(a, b, ldb, c + i * ldc, ldc, k, add);
  }
  for (; i < m; ++i, a.data += a.row) MultiplyBlock<1, kWidth>(a, b, ldb, c + i * ldc, ldc, k, add);
}

template <typename F>
void Multiply(const Matrix<const F>& a, const Matrix<const F>& b, const Matrix<float>& c, int64_t m, int64_t n,
              int64_t k, bool add) {
  int64_t j = 0;
  for (; m < kBlockRows && j + kRowVecs * kVecLanes <= n; j += kRowVecs * kVecLanes)
    Columns<kRowVecs>(a, b.data + j, b.row, c.data + j, c.row, m, k, add);
  for (; j + kBlockVecs * kVecLanes <= n; j += kBlockVecs * kVecLanes)
    Columns<kBlockVecs>(a, b.data + j, b.row, c.data + j, c.row, m, k, add);
  for (; j + kVecLanes <= n; j += kVecLanes) Columns<1>(a, b.data + j, b.row, c.data + j, c.row, m, k, add);
  if (j < n) MultiplyRemainder(a, b.data + j, b.row, c.data + j, c.row, m, n - j, k, add);
}

// Computes kColumns elements of a row of c, the products of a row x with the rows of b.
template <int kColumns, typename F>
void DotBlock(const F* x, const F* b, int64_t ldb, int64_t k, float* c) {
  VecF32 acc[kColumns];
  int64_t p = 0;
  for (; p + kVecLanes <= k; p += kVecLanes) {
    const VecOf<F> factor = VecOf<F>::Load(x + p);
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) acc[j] = MulAddPairs(acc[j], factor, VecOf<F>::Load(b + j * ldb + p));
  }
#pragma GCC unroll 4
  for (int j = 0; j < kColumns; ++j) {
    float sum = hn::GetLane(hn::SumOfLanes(VecF32::Tag(), acc[j].v));
    for (int64_t rest = p; rest < k; ++rest) sum = MulAddPairs(sum, x[rest], b[j * ldb + rest]);
    c[j] = sum;
  }
}

template <typename F>
void MultiplyTransposed(const Matrix<const F>& a, const Matrix<const F>& b, const Matrix<float>& c, int64_t m,
                        int64_t n, int64_t k) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    for (int64_t i = 0; i < m; ++i)
      DotBlock<4>(a.data + i * a.row, b.data + j * b.row, b.row, k, c.data + i * c.row + j);
  }
  for (; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i)
      DotBlock<1>(a.data + i * a.row, b.data + j * b.row, b.row, k, c.data + i * c.row + j);
  }
}

// Transposes `rows` rows of x into kTile columns of `to`; the remaining columns are zeros.
template <typename F>
void PackTile(const F* x, int64_t row, int64_t rows, int64_t columns, F* to, int64_t width) {
  const int64_t whole = rows == kTile ? columns / 4 * 4 : 0;
  TransposeTile(x, row, whole, to, width);
  for (int64_t k = whole; k < columns; ++k) {
    for (int64_t j = 0; j < kTile; ++j) to[k * width + j] = j < rows ? x[j * row + k] : F(0);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();

#endif
