#include <type_traits>
#include <utility>

#include "backends/cpu/kernels/nf4-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onnxtrain::cpu {
namespace HWY_NAMESPACE {
namespace {

using Words = hn::RebindToSigned<D>;
using IntVec = hn::Vec<Words>;

// Numbers of kBits bits: number i of a word as a float times Scale(i), without moving it to the lowest bits.
template <int kBits, bool kSigned>
struct Integers {
  static constexpr int kPerWord = 32 / kBits;

  static constexpr float Scale(int i) {
    float scale = 1;
    for (int bit = 0; bit < (i + 1 < kPerWord ? i * kBits : 0); ++bit) scale *= 2;
    return scale;
  }
  static IntVec Load(const uint8_t* q) {
    const Words words;
    const hn::Repartition<uint8_t, Words> bytes;
    const IntVec v = hn::BitCast(words, hn::LoadU(bytes, q));
    return kSigned ? hn::Xor(v, hn::Set(words, static_cast<int32_t>(0x80808080u))) : v;
  }
  template <int kIndex>
  static Vec Get(IntVec v) {
    const Words words;
    if constexpr (kIndex + 1 < kPerWord) {
      const auto mask = static_cast<int32_t>(((1u << kBits) - 1) << kIndex * kBits);
      return hn::ConvertTo(D(), hn::And(v, hn::Set(words, mask)));
    } else {
      const hn::RebindToUnsigned<D> bits;
      return hn::ConvertTo(D(), hn::BitCast(words, hn::ShiftRight<32 - kBits>(hn::BitCast(bits, v))));
    }
  }
};

struct Nf4Indices {
  static constexpr int kPerWord = 8;

  static constexpr float Scale(int) { return 1; }
  static IntVec Load(const uint8_t* q) { return Integers<4, false>::Load(q); }
  template <int kIndex>
  static Vec Get(IntVec v) {
    return LookUpNf4(hn::And(hn::ShiftRight<4 * kIndex>(v), hn::Set(Words(), 15)));
  }
};

// Calls f with the constants 0 … kCount − 1.
template <typename F, int... kIndex>
[[gnu::always_inline]] inline void ForConstants(F f, std::integer_sequence<int, kIndex...>) {
  (f(std::integral_constant<int, kIndex>()), ...);
}

// Writes element i·kStride + kFirst of each group of kPerWord elements of v, in order, to vector i·kStride + kFirst.
template <typename Number, int kFirst, int kStride, size_t kCount>
[[gnu::always_inline]] inline void StoreByIndex(const std::array<Vec, kCount>& v, float* to) {
  const D d;
  if constexpr (kCount == 1) {
    hn::StoreU(hn::Mul(v[0], hn::Set(d, 1 / Number::Scale(kFirst))), d, to + kFirst * hn::Lanes(d));
  } else {
    std::array<Vec, kCount / 2> even, odd;
    for (size_t i = 0; i < kCount / 2; ++i) {
      even[i] = hn::ConcatEven(d, v[2 * i + 1], v[2 * i]);
      odd[i] = hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]);
    }
    StoreByIndex<Number, kFirst, 2 * kStride>(even, to);
    StoreByIndex<Number, kFirst + kStride, 2 * kStride>(odd, to);
  }
}

template <typename Number>
void Permute(const float* x, int64_t n, float by, float* to, float* sums) {
  constexpr int kPerWord = Number::kPerWord;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), step = kPerWord * lanes;
  for (int64_t k = 0; k < n; k += step, to += step, sums += lanes) {
    float padded[kPerWord * hn::MaxLanes(D())] = {};
    if (n - k < step) std::copy_n(x + k, n - k, padded);
    const float* from = n - k < step ? padded : x + k;
    std::array<Vec, kPerWord> v;
    for (int i = 0; i < kPerWord; ++i) v[i] = hn::LoadU(d, from + i * lanes);
    StoreByIndex<Number, 0, 1>(v, to);
    Vec sum = hn::Zero(d);
    for (int i = 0; i < kPerWord; ++i)
      sum = hn::MulAdd(hn::LoadU(d, to + i * lanes), hn::Set(d, by * Number::Scale(i)), sum);
    hn::StoreU(sum, d, sums);
  }
}

// Returns the scales or zero points of the lanes of a step; `indices` are those of GemvTile::block_of_lane.
template <typename Indices>
[[gnu::always_inline]] inline Vec Spread(const float* of_blocks, const Indices& indices) {
  return hn::TableLookupLanes(hn::LoadU(D(), of_blocks), indices);
}

// Adds the products of kRows rows of x with a vector of words of each of kColumns columns.
template <typename Number, int kRows, int kColumns>
[[gnu::always_inline]] inline void AddStep(const GemvTile& t, const GemvColumn* columns, int64_t step,
                                           const uint8_t* const* q, Vec (&total)[kRows][kColumns]) {
  constexpr int kChains = 2;  // sums that do not wait for each other
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t block = step << t.step_bits >> t.block_bits;
  const auto indices = hn::SetTableIndices(d, t.block_of_lane);
  Vec dot[kChains][kRows][kColumns];
  const float* x[kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    x[i] = t.x + i * t.x_step + step * Number::kPerWord * lanes;
    const Vec sum = hn::LoadU(d, t.sums + i * t.sums_step + step * lanes);
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      dot[0][i][j] = columns[j].zero == nullptr ? sum : hn::Mul(sum, Spread(columns[j].zero + block, indices));
      dot[1][i][j] = hn::Zero(d);
    }
  }
  IntVec words[kColumns];
#pragma GCC unroll 4
  for (int j = 0; j < kColumns; ++j) words[j] = Number::Load(q[j]);
  const auto add = [&](auto index) __attribute__((always_inline)) {
    Vec factor[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) factor[i] = hn::LoadU(d, x[i] + index() * lanes);
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      const Vec number = Number::template Get<index()>(words[j]);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        Vec& sum = dot[index() % kChains][i][j];
        sum = hn::MulAdd(factor[i], number, sum);
      }
    }
  };
  ForConstants(add, std::make_integer_sequence<int, Number::kPerWord>());
#pragma GCC unroll 4
  for (int j = 0; j < kColumns; ++j) {
    const Vec scale = Spread(columns[j].scale + block, indices);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) total[i][j] = hn::MulAdd(scale, hn::Add(dot[0][i][j], dot[1][i][j]), total[i][j]);
  }
}

template <typename Number, int kRows, int kColumns>
[[gnu::always_inline]] inline void MultiplyColumns(const GemvTile& t, const GemvColumn* columns, float* y) {
  const D d;
  constexpr size_t kBytes = sizeof(int32_t) * hn::MaxLanes(D());
  const auto bytes = static_cast<int64_t>(hn::Lanes(hn::Repartition<uint8_t, D>()));
  Vec total[kRows][kColumns];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) total[i][j] = hn::Zero(d);
  }
  const uint8_t* q[kColumns];
  for (int j = 0; j < kColumns; ++j) q[j] = columns[j].q;
  constexpr int64_t kAhead = 4096;  // bytes: the hardware prefetcher ends with a page
  const int64_t whole = t.row_bytes / bytes;
  for (int64_t step = 0; step < whole; ++step) {
    AddStep<Number, kRows, kColumns>(t, columns, step, q, total);
    for (int j = 0; j < kColumns; ++j) {
      __builtin_prefetch(q[j] + kAhead, 0, 3);
      q[j] += bytes;
    }
  }
  if (const int64_t rest = t.row_bytes - whole * bytes; rest > 0) {
    uint8_t padded[kColumns][kBytes] = {};
    for (int j = 0; j < kColumns; ++j) {
      std::copy_n(q[j], rest, padded[j]);
      q[j] = padded[j];
    }
    AddStep<Number, kRows, kColumns>(t, columns, whole, q, total);
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) y[i * t.y_step + j] = hn::GetLane(hn::SumOfLanes(d, total[i][j]));
  }
}

template <typename Number, int kRows, int kColumns>
void Gemv(const GemvTile& tile) {
  const GemvTile t = tile;  // a local copy stays in registers: the stores cannot alias it
  int column = 0;
  for (; column + kColumns <= t.count; column += kColumns)
    MultiplyColumns<Number, kRows, kColumns>(t, t.columns + column, t.y + column);
  for (; column < t.count; ++column) MultiplyColumns<Number, kRows, 1>(t, t.columns + column, t.y + column);
}

template <typename Number>
constexpr GemvFunctions kFunctions = {.permute = Permute<Number>,
                                      .multiply = {Gemv<Number, 1, 2>, Gemv<Number, 2, 2>, Gemv<Number, 4, 1>}};

}  // namespace

const GemvSimd& GemvTable() {
  static const GemvSimd kTable = {
      .lanes = static_cast<int64_t>(hn::Lanes(D())),
      .of_number = {kFunctions<Integers<2, false>>, kFunctions<Integers<4, false>>, kFunctions<Integers<8, false>>,
                    kFunctions<Integers<8, true>>, kFunctions<Nf4Indices>}};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace onnxtrain::cpu
HWY_AFTER_NAMESPACE();
