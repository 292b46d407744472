// Packs tiles of AMX: pairs of bf16, or the three parts of float32.
#include <algorithm>
#include <bit>

#include "backends/cpu/kernels/amx.h"
#include "frontend/base/small_float.h"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // of GCC 12's own intrinsics: bug 105593

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kPairs = 2 * kAmxWords;  // elements of the summed axis in a tile

#define AVX_FUNCTION [[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]]

// Transposes 16 rows of 16 words: four words at a time, then blocks of four rows.
AVX_FUNCTION inline void Transpose(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i ab = _mm512_unpacklo_epi32(r[i], r[i + 1]), ab_up = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i cd = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), cd_up = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(ab, cd);
    t[i + 1] = _mm512_unpackhi_epi64(ab, cd);
    t[i + 2] = _mm512_unpacklo_epi64(ab_up, cd_up);
    t[i + 3] = _mm512_unpackhi_epi64(ab_up, cd_up);
  }
  for (int i = 0; i < 4; ++i) {  // t[4q + i] has columns i, 4 + i, 8 + i and 12 + i of rows 4q to 4q + 3
    const __m512i low = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88), high = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88),
                  high2 = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
    r[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    r[4 + i] = _mm512_shuffle_i32x4(high, high2, 0x88);
    r[12 + i] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}

// Returns the next part of x, a bf16, and subtracts it from x: the upper bits first, then the rest as rounded.
AVX_FUNCTION inline __m256i TakePart(__m512& x, bool first) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x);
  const __m256i part = first ? _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16))
                             : reinterpret_cast<const __m256i&>(rounded);
  x = _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(part), 16)));
  return part;
}

AVX_FUNCTION inline __m256i Load(const uint16_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }

// Fills row i of a tile, or of the tiles of all parts, with 16 elements from x and 16 from y on: one after the other,
// or as pairs.
template <bool kPaired>
AVX_FUNCTION inline void StoreRow(__m256i x, __m256i y, uint32_t* row) {
  const __m512i words = kPaired
                            ? _mm512_or_si512(_mm512_cvtepu16_epi32(x), _mm512_slli_epi32(_mm512_cvtepu16_epi32(y), 16))
                            : _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
  _mm512_storeu_si512(row, words);
}

template <bool kPaired>
AVX_FUNCTION inline void FillRow(const uint16_t* x, const uint16_t* y, uint32_t* row) {
  StoreRow<kPaired>(Load(x), Load(y), row);
}

template <bool kPaired>
AVX_FUNCTION inline void FillRow(const float* x, const float* y, uint32_t* row) {
  __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(y);
  for (int64_t part = 0; part < kAmxParts<float>; ++part)
    StoreRow<kPaired>(TakePart(first, part == 0), TakePart(second, part == 0), row + part * kAmxTileWords);
}

AVX_FUNCTION void TransposeTile(uint32_t* tile) {
  __m512i rows[kAmxRows];
  for (int64_t i = 0; i < kAmxRows; ++i) rows[i] = _mm512_loadu_si512(tile + i * kAmxWords);
  Transpose(rows);
  for (int64_t i = 0; i < kAmxRows; ++i) _mm512_storeu_si512(tile + i * kAmxWords, rows[i]);
}

// Fills a whole tile. Words of the summed axis are rows of the tile if `down`, else columns.
template <typename T>
AVX_FUNCTION void PackWhole(const T* x, int64_t outer_stride, int64_t k_stride, bool down, uint32_t* to) {
  const bool pairs_lie_down = k_stride != 1;  // elements of a pair are in adjacent rows of memory
  for (int64_t i = 0; i < kAmxRows; ++i) {
    if (pairs_lie_down) {
      FillRow<true>(x + 2 * i * k_stride, x + (2 * i + 1) * k_stride, to + i * kAmxWords);
    } else {
      FillRow<false>(x + i * outer_stride, x + i * outer_stride + kAmxWords, to + i * kAmxWords);
    }
  }
  if (pairs_lie_down == down) return;
  for (int64_t part = 0; part < kAmxParts<T>; ++part) TransposeTile(to + part * kAmxTileWords);
}

// Writes an element as half a word of a tile, or of the tiles of all parts.
void StoreElement(uint16_t x, int64_t bit, uint32_t* word) { *word |= uint32_t{x} << bit; }

void StoreElement(float x, int64_t bit, uint32_t* word) {
  for (int64_t part = 0; part < kAmxParts<float>; ++part, word += kAmxTileWords) {
    const uint16_t bits = part == 0 ? std::bit_cast<uint32_t>(x) >> 16 : FloatToBFloat16(x);
    x -= BFloat16ToFloat(bits);
    *word |= uint32_t{bits} << bit;
  }
}

// Fills a tile at the border of a matrix.
template <typename T>
void PackRim(const AmxSource<T>& x, int64_t first, int64_t k, bool down, uint32_t* to) {
  std::fill_n(to, kAmxParts<T> * kAmxTileWords, 0);
  for (int64_t i = 0; i < std::min(kAmxRows, x.outer - first); ++i) {
    for (int64_t p = 0; p < std::min(kPairs, x.k - k); ++p) {
      StoreElement(x.data[(first + i) * x.outer_stride + (k + p) * x.k_stride], p % 2 * 16,
                   &to[down ? p / 2 * kAmxWords + i : i * kAmxWords + p / 2]);
    }
  }
}

}  // namespace

template <typename T>
void PackAmxTile(const AmxSource<T>& x, int64_t i, int64_t p, AmxFactor factor, uint32_t* to) {
  const int64_t first = i * kAmxRows, k = p * kPairs;
  const bool down = factor == AmxFactor::kB;
  if (first + kAmxRows > x.outer || k + kPairs > x.k) return PackRim(x, first, k, down, to);
  PackWhole(x.data + first * x.outer_stride + k * x.k_stride, x.outer_stride, x.k_stride, down, to);
}

}  // namespace onnxtrain::cpu
#pragma GCC diagnostic pop

#else  // AMX is of x86-64

#include <cstdlib>

namespace onnxtrain::cpu {

template <typename T>
void PackAmxTile(const AmxSource<T>&, int64_t, int64_t, AmxFactor, uint32_t*) {
  std::abort();
}

}  // namespace onnxtrain::cpu
#endif

namespace onnxtrain::cpu {

template void PackAmxTile(const AmxSource<uint16_t>&, int64_t, int64_t, AmxFactor, uint32_t*);
template void PackAmxTile(const AmxSource<float>&, int64_t, int64_t, AmxFactor, uint32_t*);

}  // namespace onnxtrain::cpu
