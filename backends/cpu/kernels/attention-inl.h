#include "backends/cpu/kernels/attention_products-inl.h"
#include "backends/cpu/kernels/vector_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

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
// algorithm). e^0 is 1; the result is arbitrary for x < −87.
[[gnu::always_inline]] inline VecF32 BriefExp(VecF32 x) {
  constexpr float kLog2E = 1.44269504088896341f, kInteger = 12582912.0f;  // 1.5·2^23: the low bits are an integer
  const VecF32 shifted = Fma(x, kLog2E, kInteger);
  const VecF32 fraction = Fma(x, kLog2E, kInteger - shifted);
  const VecF32 power = Poly<VecF32>(fraction, 1.0f, 0.69328293f, 0.24221096f, 0.05500893f);
  return FromBits(Bits(power) + ShiftLeft<23>(Bits(shifted)));
}

// Returns e^x for x ≤ 0; results below e^−87, which would be denormal, are zero. `kBrief`: what reads them rounds to
// bf16.
template <bool kBrief>
[[gnu::always_inline]] inline VecF32 ExpOfScore(VecF32 x) {
  const auto tiny = x < -87.0f;
  return Select(tiny, 0.0f, kBrief ? BriefExp(x) : VecExpFiniteRange<VecF32>(Select(tiny, -87.0f, x)));
}

// Replaces s[begin, end) by e^(s − max), stored as S from the start of the row, and returns the sum.
template <typename S, bool kBrief>
float ExpRow(float* s, int64_t begin, int64_t end, float max) {
  S* to = reinterpret_cast<S*>(s);
  VecF32 sum;
  for (int64_t j = begin; j < end; j += kVecLanes) {
    const VecF32 e = ExpOfScore<kBrief>(VecF32::Load(s + j) - max);
    sum = sum + e;
    Put(e, to + j);
  }
  return hn::GetLane(hn::SumOfLanes(VecF32::Tag(), sum.v));
}

// Elements of a row of scores, whole vectors.
struct Lanes {
  int64_t begin, end;
};

// Returns the elements that a query sees.
inline Lanes SeenLanes(const KeyRange& seen) {
  return {seen.begin / kVecLanes * kVecLanes, (seen.end + kVecLanes - 1) / kVecLanes * kVecLanes};
}

// Writes zeros to the elements of a row of n that are not in `lanes`.
template <typename T>
void ClearOutside(Lanes lanes, int64_t n, T* row) {
  __builtin_memset(row, 0, lanes.begin * sizeof(T));
  __builtin_memset(row + lanes.end, 0, (n - lanes.end) * sizeof(T));
}

template <typename S, bool kBrief>
void Softmax(const ScoreRows& r, float scale, const ScoreMask& mask, const SoftmaxRows<float>& rows) {
  for (int64_t i = 0; i < r.rows; ++i) {
    float* s = r.data + i * r.ld;
    S* p = reinterpret_cast<S*>(s);
    const KeyRange seen = r.Seen(i);
    const Lanes lanes = SeenLanes(seen);
    const float* added = mask.data == nullptr || !seen.masked ? nullptr : mask.data + i * mask.row;
    const float max = ScaleAndMask(s, lanes.begin, seen.end, scale, added, mask.column);
    const bool hidden = max == -kInf;  // all keys are hidden: exponentials and result are zeros
    rows.max[i] = hidden ? 0.0f : max;
    rows.inverse[i] = 1.0f / (ExpRow<S, kBrief>(s, lanes.begin, lanes.end, rows.max[i]) + (hidden ? 1.0f : 0.0f));
    ClearOutside(lanes, r.padded, p);
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

// Calls step(j, whole) for all vectors of `lanes`; std::true_type: both rows have whole lanes there.
template <typename Step>
[[gnu::always_inline]] inline void ForLanes(Lanes lanes, Lanes whole, Step step) {
  int64_t j = lanes.begin;
  for (; j < std::min(whole.begin, lanes.end); j += kVecLanes) step(j, std::false_type());
  for (; j < whole.end; j += kVecLanes) step(j, std::true_type());
  for (; j < lanes.end; j += kVecLanes) step(j, std::false_type());
}

// One row of the backward pass: the probabilities P = e^(s·scale + mask − max)·inverse and the gradients of the scores
// by `scale`, slope∘P∘(kept∘dp − dot). The gradient of the values reads kept∘P. `dot` is Σ dy·y, or Σ P∘kept∘dp of a
// row that sees few keys, where the rounding of y shows: the gradient of a single score is exactly zero.
template <typename S, bool kBrief, bool kHasFactors>
class GradRow {
 public:
  GradRow(const ScoreGradients<S>& x, int64_t i)
      : s_(x.scores.data + i * x.scores.ld),
        dp_(x.dp + i * x.scores.ld),
        kept_(RowOf(x.factors.kept, x, i)),
        slope_(RowOf(x.factors.slope, x, i)),
        scale_(x.scale),
        max_(x.softmax.max[i]),
        inverse_(x.softmax.inverse[i]),
        dot_(x.dot[i]),
        seen_(x.scores.Seen(i)),
        lanes_(SeenLanes(seen_)) {
    if (x.mask.data != nullptr && seen_.masked) {
      const float* mask = x.mask.data + i * x.mask.row;
      if (x.mask.column == 0) {
        added_ = mask[0];
      } else {
        mask_ = mask;
      }
    }
    if (seen_.size() <= kFewKeys && x.scores.IsWhole(i, x.has_all_keys)) dot_ = Dot();
  }

  Lanes lanes() const { return lanes_; }
  // Returns the lanes all of whose keys the query sees, or the mask hides.
  Lanes whole() const { return {lanes_.begin, std::max(lanes_.begin, seen_.end / kVecLanes * kVecLanes)}; }

  // Returns P of whole lanes, or of any.
  template <bool kWhole>
  [[gnu::always_inline]] VecF32 ProbabilityAt(int64_t j) const {
    if constexpr (kWhole) return P(j);
    return PartOfP(j);
  }
  [[gnu::always_inline]] VecF32 Kept(int64_t j, VecF32 p) const { return Times(kept_, j, p); }
  [[gnu::always_inline]] VecF32 Score(int64_t j, VecF32 p) const {
    return Times(slope_, j, p * (Kept(j, VecF32::Load(dp_ + j)) - dot_));
  }

 private:
  static constexpr int64_t kFewKeys = 16;

  float Dot() const {
    VecF32 sum;
    ForLanes(lanes_, whole(), [&](int64_t j, auto is_whole) {
      sum = Fma(ProbabilityAt<decltype(is_whole)::value>(j), Kept(j, VecF32::Load(dp_ + j)), sum);
    });
    return hn::GetLane(hn::SumOfLanes(VecF32::Tag(), sum.v));
  }
  [[gnu::always_inline]] VecF32 P(int64_t j) const {
    return At(j, mask_ == nullptr ? added_ : VecF32::Load(mask_ + j));
  }
  // Returns zero for keys that the query does not see. Does not read the mask after them.
  VecF32 PartOfP(int64_t j) const {
    if (j < lanes_.begin || j >= lanes_.end) return 0.0f;
    if (j + kVecLanes <= seen_.end) return P(j);
    float added[kVecLanes] = {};
    for (int64_t i = 0; i < seen_.end - j; ++i) added[i] = mask_ == nullptr ? added_ : mask_[j + i];
    return hn::IfThenElseZero(hn::FirstN(VecF32::Tag(), seen_.end - j), At(j, VecF32::Load(added)).v);
  }
  // Rounds as ScaleAndMask does: beside a mask of −1e9, other roundings would differ by 64.
  [[gnu::always_inline]] VecF32 At(int64_t j, VecF32 added) const {
    return ExpOfScore<kBrief>(VecF32::Load(s_ + j) * scale_ + added - max_) * inverse_;
  }
  static const float* RowOf(const float* factors, const ScoreGradients<S>& x, int64_t i) {
    return factors == nullptr ? nullptr : factors + i * x.scores.ld;
  }
  [[gnu::always_inline]] static VecF32 Times(const float* factors, int64_t j, VecF32 x) {
    if constexpr (kHasFactors) return factors == nullptr ? x : x * VecF32::Load(factors + j);
    return x;
  }

  const float *s_, *dp_, *kept_, *slope_, *mask_ = nullptr;
  float scale_, max_, inverse_, dot_, added_ = 0;
  KeyRange seen_;
  Lanes lanes_;
};

template <bool kBrief, bool kHasFactors>
void ScoreGradRows(const ScoreGradients<float>& x) {
  for (int64_t i = 0; i < x.scores.rows; ++i) {
    float *p = x.p + i * x.row, *ds = x.ds + i * x.row;
    const GradRow<float, kBrief, kHasFactors> row(x, i);
    ForLanes(row.lanes(), row.whole(), [&](int64_t j, auto whole) {
      const VecF32 y = row.template ProbabilityAt<decltype(whole)::value>(j);
      row.Kept(j, y).Store(p + j);
      row.Score(j, y).Store(ds + j);
    });
    ClearOutside(row.lanes(), x.scores.padded, p);
    ClearOutside(row.lanes(), x.scores.padded, ds);
  }
}

// A last row without another one is paired with zeros.
template <bool kBrief, bool kHasFactors>
void ScoreGradRows(const ScoreGradients<uint16_t>& x) {
  using Row = GradRow<uint16_t, kBrief, kHasFactors>;
  for (int64_t i = 0; i < x.scores.rows; i += 2) {
    uint32_t *p = x.p + i / 2 * x.row, *ds = x.ds + i / 2 * x.row;
    uint16_t *across = x.across + i * x.row, *next = across + x.row;
    const bool both = i + 1 < x.scores.rows;
    const Row first(x, i), second(x, both ? i + 1 : i);
    const Lanes lanes{std::min(first.lanes().begin, second.lanes().begin),
                      std::max(first.lanes().end, second.lanes().end)};
    const Lanes whole{std::max(first.whole().begin, second.whole().begin),
                      both ? std::min(first.whole().end, second.whole().end) : 0};
    ForLanes(lanes, whole, [&](int64_t j, auto is_whole) {
      constexpr bool kWhole = decltype(is_whole)::value;
      const VecF32 y = first.template ProbabilityAt<kWhole>(j),
                   z = kWhole || both ? second.template ProbabilityAt<kWhole>(j) : 0.0f;
      TwoRows(first.Kept(j, y), second.Kept(j, z)).Pairs().Store(p + j);
      const TwoRows grads(first.Score(j, y), second.Score(j, z));
      grads.Pairs().Store(ds + j);
      grads.StoreFirst(across + j);
      if (kWhole || both) grads.StoreSecond(next + j);
    });
    ClearOutside(lanes, x.scores.padded, p);
    ClearOutside(lanes, x.scores.padded, ds);
    ClearOutside(lanes, x.scores.padded, across);
    if (both) ClearOutside(lanes, x.scores.padded, next);
  }
}

template <typename S, bool kBrief>
void ScoreGrads(const ScoreGradients<S>& x) {
  const bool any = x.factors.kept != nullptr || x.factors.slope != nullptr;
  any ? ScoreGradRows<kBrief, true>(x) : ScoreGradRows<kBrief, false>(x);
}

inline float ToFloat(uint16_t x) { return FromBFloat16(x); }

[[gnu::always_inline]] inline VecU32 Widened(const uint16_t* from) {
  return hn::PromoteTo(VecU32::Tag(), hn::LoadU(hn::Rebind<uint16_t, VecU32::Tag>(), from));
}
[[gnu::always_inline]] inline VecF32 WideAt(const float* x) { return VecF32::Load(x); }
[[gnu::always_inline]] inline VecF32 WideAt(const uint16_t* x) { return FromBFloat16(Widened(x)); }

template <typename S>
float Dot(const S* x, int64_t x_step, const S* y, int64_t y_step, int64_t n) {
  VecF32 lanes;
  int64_t j = 0;
  for (; x_step == 1 && y_step == 1 && j + kVecLanes <= n; j += kVecLanes)
    lanes = Fma(WideAt(x + j), WideAt(y + j), lanes);
  float sum = hn::GetLane(hn::SumOfLanes(VecF32::Tag(), lanes.v));
  for (; j < n; ++j) sum += ToFloat(x[j * x_step]) * ToFloat(y[j * y_step]);
  return sum;
}

template <typename S>
float LargestSquare(const S* x, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  float max = 0;
  for (int64_t i = 0; i < rows; ++i, x += row) {
    const float sum = Dot(x, column, x, column, columns);
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
constexpr AttentionSimd<S> kAttention = {.multiply = Multiply,
                                         .multiply_transposed = MultiplyTransposed,
                                         .pack_tile = PackTile,
                                         .dot = Dot,
                                         .largest_square = LargestSquare,
                                         .softmax = Softmax<S, kBrief>,
                                         .softmax_floats = Softmax<float, kBrief>,
                                         .softcap = CapRows,
                                         .score_grads = ScoreGrads<S, kBrief>,
                                         .scale = Scale,
                                         .pack_column_pairs = PackColumnPairs};

}  // namespace

const AttentionSimd<float>& FloatAttentionTable() { return kAttention<float, false>; }
const AttentionSimd<uint16_t>& PairAttentionTable() { return kAttention<uint16_t, true>; }

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
