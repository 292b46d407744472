#include "backends/cpu/kernels/bfloat16-inl.h"
#include "backends/cpu/kernels/vec-inl.h"
#include "backends/cpu/kernels/vector_math-inl.h"
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
[[gnu::always_inline]] inline VecU32 RoundedPairs(VecF32 first, VecF32 second) {
  return VecU32(hn::PromoteTo(VecU32::Tag(), Rounded(first))) |
         ShiftLeft<16>(VecU32(hn::PromoteTo(VecU32::Tag(), Rounded(second))));
}
#else
[[gnu::always_inline]] inline VecF32 MulAddPairs(VecF32 acc, VecU32 x, VecU32 row) {
  const VecF32 first = Fma(FromBits(ShiftLeft<16>(x)), FromBits(ShiftLeft<16>(row)), acc);
  return Fma(FromBits(x & 0xffff0000u), FromBits(row & 0xffff0000u), first);
}
[[gnu::always_inline]] inline auto Rounded(VecF32 x) {
  return hn::TruncateTo(hn::Rebind<uint16_t, VecF32::Tag>(), RoundToBFloat16(x).v);
}
[[gnu::always_inline]] inline VecU32 RoundedPairs(VecF32 first, VecF32 second) { return PackBf16Pair(first, second); }
#endif

// Stores a vector in the element type of `to`.
[[gnu::always_inline]] inline void Put(VecF32 x, float* to) { x.Store(to); }
[[gnu::always_inline]] inline void Put(VecF32 x, uint16_t* to) {
  hn::StoreU(Rounded(x), hn::Rebind<uint16_t, VecF32::Tag>(), to);
}
inline void Put(float x, float* to) { *to = x; }
inline void Put(float x, uint16_t* to) { *to = static_cast<uint16_t>(RoundToBFloat16(x)); }

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

// Computes s·scale + mask in place from `begin` on, a multiple of the lanes, and returns the maximum. Sets the lanes
// after the last key to −∞, so that their exponentials are zero.
float ScaleAndMask(float* s, int64_t begin, int64_t n, float scale, const float* mask, int64_t step) {
  const VecF32 one = mask == nullptr || step != 0 ? 0.0f : mask[0];
  const bool adds = mask != nullptr && step != 0;
  VecF32 max = -kInf;
  int64_t j = begin;
  for (; j + kVecLanes <= n; j += kVecLanes) {
    const VecF32 x = VecF32::Load(s + j) * scale + (adds ? VecF32::Load(mask + j) : one);
    x.Store(s + j);
    max = Select(x > max, x, max);
  }
  if (j < n) {
    float last[kVecLanes] = {};
    for (int64_t i = 0; adds && j + i < n; ++i) last[i] = mask[j + i];
    const VecF32 x = VecF32::Load(s + j) * scale + (adds ? VecF32::Load(last) : one);
    const VecF32 there = hn::IfThenElse(hn::FirstN(VecF32::Tag(), n - j), x.v, VecF32(-kInf).v);
    there.Store(s + j);
    max = Select(there > max, there, max);
  }
  return hn::GetLane(hn::MaxOfLanes(VecF32::Tag(), max.v));
}

// Returns e^x with a relative error of 1e-4, less than results of bf16 show (a minimax fit of 2^f by Lawson's
// algorithm). e^0 is 1, so that the gradient of a single score is 0; the result is arbitrary for x < −87.
[[gnu::always_inline]] inline VecF32 BriefExp(VecF32 x) {
  constexpr float kLog2E = 1.44269504088896341f, kInteger = 12582912.0f;  // 1.5·2^23: the low bits are an integer
  const VecF32 shifted = Fma(x, kLog2E, kInteger);
  const VecF32 fraction = Fma(x, kLog2E, kInteger - shifted);
  const VecF32 power = Poly<VecF32>(fraction, 1.0f, 0.69328293f, 0.24221096f, 0.05500893f);
  return FromBits(Bits(power) + ShiftLeft<23>(Bits(shifted)));
}

// Replaces s[begin, end) by e^(s − max), stored as S from the start of the row, and returns the sum. Results below
// e^−87, which would be denormal, are zero. `kBrief`: what reads them rounds to bf16.
template <typename S, bool kBrief>
float ExpRow(float* s, int64_t begin, int64_t end, float max) {
  S* to = reinterpret_cast<S*>(s);
  VecF32 sum;
  for (int64_t j = begin; j < end; j += kVecLanes) {
    const VecF32 x = VecF32::Load(s + j) - max;
    const auto tiny = x < -87.0f;
    const VecF32 e = Select(tiny, 0.0f, kBrief ? BriefExp(x) : VecExpFiniteRange<VecF32>(Select(tiny, -87.0f, x)));
    sum = sum + e;
    Put(e, to + j);
  }
  return hn::GetLane(hn::SumOfLanes(VecF32::Tag(), sum.v));
}

// The elements of a row of scores that a query sees, in whole vectors.
struct SeenLanes {
  int64_t begin, end;

  SeenLanes(const ScoreRows& r, int64_t i) : SeenLanes(r.Seen(i)) {}
  explicit SeenLanes(const KeyRange& seen)
      : begin(seen.begin / kVecLanes * kVecLanes), end((seen.end + kVecLanes - 1) / kVecLanes * kVecLanes) {}
};

template <typename S, bool kBrief>
void SoftmaxRows(const ScoreRows& r, float scale, const ScoreMask& mask, float* inverse) {
  for (int64_t i = 0; i < r.rows; ++i) {
    float* s = r.data + i * r.ld;
    S* p = reinterpret_cast<S*>(s);
    const KeyRange seen = r.Seen(i);
    const SeenLanes lanes(seen);
    const float* added = mask.data == nullptr || !seen.masked ? nullptr : mask.data + i * mask.row;
    const float max = ScaleAndMask(s, lanes.begin, seen.end, scale, added, mask.column);
    const bool hidden = max == -kInf;  // all keys are hidden: exponentials and result are zeros
    inverse[i] = 1.0f / (ExpRow<S, kBrief>(s, lanes.begin, lanes.end, hidden ? 0.0f : max) + (hidden ? 1.0f : 0.0f));
    __builtin_memset(p, 0, lanes.begin * sizeof(S));
    __builtin_memset(p + lanes.end, 0, (r.padded - lanes.end) * sizeof(S));
  }
}

void CapRows(const ScoreRows& r, float scale, float cap, float* slopes) {
  const float inner = scale / cap;
  for (int64_t i = 0; i < r.rows; ++i) {
    float* s = r.data + i * r.ld;
    for (int64_t j = 0; j < r.padded; j += kVecLanes) {
      const VecF32 tanh = VecTanh<VecF32>(VecF32::Load(s + j) * inner);
      (tanh * cap).Store(s + j);
      if (slopes != nullptr) (1.0f - tanh * tanh).Store(slopes + i * r.ld + j);
    }
  }
}

// One row of the backward pass: the probabilities P = p·inverse and the gradients of the scores,
// slope∘P∘(kept∘dp − Σ P∘kept∘dp)·scale. The gradient of the values reads kept∘P.
template <bool kHasFactors>
struct GradRow {
  const float *p, *dp, *kept, *slope;
  float inverse, scale, dot;

  GradRow(const ScoreRows& rows, const float* all_dp, const ScoreFactors& factors, int64_t i, float inverse,
          float scale)
      : p(rows.data + i * rows.ld),
        dp(all_dp + i * rows.ld),
        kept(factors.kept == nullptr ? nullptr : factors.kept + i * rows.ld),
        slope(factors.slope == nullptr ? nullptr : factors.slope + i * rows.ld),
        inverse(inverse),
        scale(scale) {
    const SeenLanes lanes(rows, i);
    VecF32 sum;
    for (int64_t j = lanes.begin; j < lanes.end; j += kVecLanes) sum = Fma(VecF32::Load(p + j), Dp(j), sum);
    dot = hn::GetLane(hn::SumOfLanes(VecF32::Tag(), sum.v)) * inverse;
  }
  [[gnu::always_inline]] static VecF32 Times(const float* factors, int64_t j, VecF32 x) {
    if constexpr (kHasFactors) return factors == nullptr ? x : x * VecF32::Load(factors + j);
    return x;
  }
  [[gnu::always_inline]] VecF32 Dp(int64_t j) const { return Times(kept, j, VecF32::Load(dp + j)); }
  [[gnu::always_inline]] VecF32 P(int64_t j) const { return VecF32::Load(p + j) * inverse; }
  [[gnu::always_inline]] VecF32 Kept(int64_t j, VecF32 p_of_j) const { return Times(kept, j, p_of_j); }
  [[gnu::always_inline]] VecF32 Score(int64_t j, VecF32 p_of_j) const {
    return Times(slope, j, p_of_j * (Dp(j) - dot) * scale);
  }
};

template <bool kHasFactors>
void ScoreGradRows(const ScoreRows& p, float* dp, float scale, const float* inverse, const ScoreFactors& factors,
                   float*) {
  for (int64_t i = 0; i < p.rows; ++i) {
    float *to = p.data + i * p.ld, *to_dp = dp + i * p.ld;
    const GradRow<kHasFactors> row(p, dp, factors, i, inverse[i], scale);
    for (int64_t j = 0; j < p.padded; j += kVecLanes) {
      const VecF32 x = row.P(j);
      row.Score(j, x).Store(to_dp + j);
      row.Kept(j, x).Store(to + j);
    }
  }
}

// Stores rows 2i and 2i+1 as one row of pairs, in place of row 2i.
template <bool kHasFactors>
void ScoreGradRows(const ScoreRows& p, float* dp, float scale, const float* inverse, const ScoreFactors& factors,
                   uint32_t* across) {
  for (int64_t i = 0; i < p.rows; i += 2) {
    float *to = p.data + i * p.ld, *to_dp = dp + i * p.ld;
    const bool both = i + 1 < p.rows;
    const GradRow<kHasFactors> first(p, dp, factors, i, inverse[i], scale);
    const GradRow<kHasFactors> second(p, dp, factors, both ? i + 1 : i, both ? inverse[i + 1] : 0.0f, scale);
    auto* rows = reinterpret_cast<uint16_t*>(across + i * p.ld / 2);
    for (int64_t j = 0; j < p.padded; j += kVecLanes) {
      const VecF32 x = first.P(j), y = second.P(j), dx = first.Score(j, x), dy = second.Score(j, y);
      RoundedPairs(first.Kept(j, x), second.Kept(j, y)).Store(reinterpret_cast<uint32_t*>(to) + j);
      RoundedPairs(dx, dy).Store(reinterpret_cast<uint32_t*>(to_dp) + j);
      Put(dx, rows + j);
      if (both) Put(dy, rows + p.ld + j);
    }
  }
}

template <typename F>
void ScoreGrads(const ScoreRows& p, float* dp, float scale, const float* inverse, const ScoreFactors& factors,
                F* across) {
  const bool any = factors.kept != nullptr || factors.slope != nullptr;
  any ? ScoreGradRows<true>(p, dp, scale, inverse, factors, across)
      : ScoreGradRows<false>(p, dp, scale, inverse, factors, across);
}

inline float ToFloat(uint16_t x) { return FromBFloat16(x); }

[[gnu::always_inline]] inline VecU32 Widened(const uint16_t* from) {
  return hn::PromoteTo(VecU32::Tag(), hn::LoadU(hn::Rebind<uint16_t, VecU32::Tag>(), from));
}
[[gnu::always_inline]] inline VecF32 WideAt(const float* x) { return VecF32::Load(x); }
[[gnu::always_inline]] inline VecF32 WideAt(const uint16_t* x) { return FromBFloat16(Widened(x)); }

template <typename S>
float SumOfSquares(const S* x, int64_t n, int64_t step) {
  VecF32 lanes;
  int64_t j = 0;
  for (; step == 1 && j + kVecLanes <= n; j += kVecLanes) lanes = Fma(WideAt(x + j), WideAt(x + j), lanes);
  float sum = hn::GetLane(hn::SumOfLanes(VecF32::Tag(), lanes.v));
  for (; j < n; ++j) sum += ToFloat(x[j * step]) * ToFloat(x[j * step]);
  return sum;
}

template <typename S>
float LargestSquare(const S* x, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  float max = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float sum = SumOfSquares(x + i * row, columns, column);
    max = sum > max || sum != sum ? sum : max;
  }
  return max;
}

template <typename S>
void Scale(const float* x, int64_t n, float by, S* to) {
  int64_t j = 0;
  for (; j + kVecLanes <= n; j += kVecLanes) Put(VecF32::Load(x + j) * by, to + j);
  for (; j < n; ++j) Put(x[j] * by, to + j);
}

void PackColumnPairs(const uint16_t* first, const uint16_t* second, int64_t n, uint32_t* to) {
  int64_t j = 0;
  for (; j + kVecLanes <= n; j += kVecLanes) (Widened(first + j) | ShiftLeft<16>(Widened(second + j))).Store(to + j);
  for (; j < n; ++j) to[j] = first[j] | static_cast<uint32_t>(second[j]) << 16;
}

template <typename S, bool kBrief>
constexpr AttentionSimd<S> kAttention = {
    Multiply, MultiplyTransposed, PackTile, LargestSquare,  SoftmaxRows<S, kBrief>, SoftmaxRows<float, kBrief>,
    CapRows,  ScoreGrads,         Scale,    PackColumnPairs};

}  // namespace

const AttentionSimd<float>& FloatAttentionTable() { return kAttention<float, false>; }
const AttentionSimd<uint16_t>& PairAttentionTable() { return kAttention<uint16_t, true>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
