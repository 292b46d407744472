#include "backends/cpu/kernels/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "hwy/targets.h"

namespace onnxtrain::cpu {
namespace {

// Returns true if CPUID names the tiles, their products of bf16, and the same of AVX-512, for which pairs are packed.
bool ProcessorHasAmx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kBf16Products = 1u << 22, kTiles = 1u << 24, kAvx512Bf16 = 1u << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16Products) == 0 || (d & kTiles) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvx512Bf16) != 0;
}

bool SystemAllowsAmx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

constexpr TileConfig MakeWholeTiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = kAmxWords * 4;
    config.rows[i] = kAmxRows;
  }
  return config;
}

constexpr TileConfig kWholeTiles = MakeWholeTiles();

#define AMX_FUNCTION [[gnu::target("amx-tile,amx-bf16")]]

AMX_FUNCTION void Configure() { _tile_loadconfig(&kWholeTiles); }
AMX_FUNCTION void Release() { _tile_release(); }

// Computes kRows × kColumns tiles of c from the tiles of a and b at `a_data` and `b_data`. Tiles 0 to 3 are c, 4 and 5
// rows of a, 6 and 7 columns of b. Copies of AmxTiles would pass through the stack, where wide loads wait for narrow
// stores.
template <int kRows, int kColumns>
AMX_FUNCTION void MultiplyTiles(const AmxTiles& a, const uint32_t* a_data, const AmxTiles& b, const uint32_t* b_data,
                                float* c, int64_t row, int64_t k, bool add) {
  constexpr int64_t kBytes = 4;
  const int64_t a_row = a.row * kBytes, b_row = b.row * kBytes, c_row = row * kBytes;
  float* below = c + kAmxRows * row;
  if (add) {
    _tile_loadd(0, c, c_row);
    if constexpr (kColumns == 2) _tile_loadd(1, c + kAmxWords, c_row);
    if constexpr (kRows == 2) _tile_loadd(2, below, c_row);
    if constexpr (kRows * kColumns == 4) _tile_loadd(3, below + kAmxWords, c_row);
  } else {
    _tile_zero(0);
    if constexpr (kColumns == 2) _tile_zero(1);
    if constexpr (kRows == 2) _tile_zero(2);
    if constexpr (kRows * kColumns == 4) _tile_zero(3);
  }
  for (int64_t p = 0; p < k; p += kAmxWords, a_data += a.step, b_data += b.step) {
    _tile_loadd(4, a_data, a_row);
    _tile_loadd(6, b_data, b_row);
    if constexpr (kColumns == 2) _tile_loadd(7, b_data + b.next, b_row);
    if constexpr (kRows == 2) _tile_loadd(5, a_data + a.next, a_row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kRows * kColumns == 4) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_row);
  if constexpr (kColumns == 2) _tile_stored(1, c + kAmxWords, c_row);
  if constexpr (kRows == 2) _tile_stored(2, below, c_row);
  if constexpr (kRows * kColumns == 4) _tile_stored(3, below + kAmxWords, c_row);
}

#define AVX_FUNCTION [[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]]

// Transposes 16 rows of 16 words: four words at a time, then blocks of four rows.
AVX_FUNCTION inline void Transpose(__m512i (&r)[16]) {
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

// Loads 16 elements of each of the rows x and x + row as 16 pairs.
AVX_FUNCTION inline __m512i LoadPairs(const uint16_t* x, int64_t row) {
  const __m512i first = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  const __m512i second = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + row)));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

// Fills a whole tile. Words of the summed axis are rows of the tile if `down`, else columns.
AVX_FUNCTION void PackWhole(const uint16_t* x, int64_t outer_stride, int64_t k_stride, bool down, uint32_t* to) {
  __m512i rows[kAmxRows];
  const bool pairs_lie_down = k_stride != 1;  // elements of a pair are in adjacent rows of memory
  for (int64_t i = 0; i < kAmxRows; ++i)
    rows[i] = pairs_lie_down ? LoadPairs(x + 2 * i * k_stride, k_stride) : _mm512_loadu_si512(x + i * outer_stride);
  if (pairs_lie_down != down) Transpose(rows);
  for (int64_t i = 0; i < kAmxRows; ++i) _mm512_storeu_si512(to + i * kAmxWords, rows[i]);
}

// Fills a tile at the border of a matrix.
void PackRim(const AmxSource& x, int64_t first, int64_t k, bool down, uint32_t* to) {
  std::fill_n(to, kAmxRows * kAmxWords, 0);
  for (int64_t i = 0; i < std::min(kAmxRows, x.outer - first); ++i) {
    for (int64_t p = 0; p < std::min(2 * kAmxWords, x.k - k); ++p) {
      uint32_t& word = to[down ? p / 2 * kAmxWords + i : i * kAmxWords + p / 2];
      word |= uint32_t{x.data[(first + i) * x.outer_stride + (k + p) * x.k_stride]} << (p % 2 * 16);
    }
  }
}

void PackTile(const AmxSource& x, int64_t i, int64_t p, bool down, uint32_t* to) {
  const int64_t first = i * kAmxRows, k = p * 2 * kAmxWords;
  if (first + kAmxRows > x.outer || k + 2 * kAmxWords > x.k) return PackRim(x, first, k, down, to);
  PackWhole(x.data + first * x.outer_stride + k * x.k_stride, x.outer_stride, x.k_stride, down, to);
}

}  // namespace

bool HasAmx() {
  static const bool has = ProcessorHasAmx() && SystemAllowsAmx();
  return has && (hwy::SupportedTargets() & HWY_AVX3) != 0;
}

AmxScope::AmxScope() { Configure(); }
AmxScope::~AmxScope() { Release(); }

namespace {

// Prefetches up to 32 rows of 32 sums, to be written: they are too far apart for the hardware prefetcher.
void PrefetchSums(const float* c, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < std::min<int64_t>(rows, 2 * kAmxRows); ++i) {
    __builtin_prefetch(c + i * row, 1);
    __builtin_prefetch(c + i * row + kAmxWords, 1);
  }
}

}  // namespace

void MultiplyAmx(const AmxTiles& a, const AmxTiles& b, const AmxSums& c, int64_t m, int64_t n, int64_t k, bool add) {
  constexpr decltype(&MultiplyTiles<1, 1>) kBlocks[2][2] = {{MultiplyTiles<1, 1>, MultiplyTiles<1, 2>},
                                                            {MultiplyTiles<2, 1>, MultiplyTiles<2, 2>}};
  asm volatile("" ::: "memory");  // loads of tiles do not say that they read memory
  for (int64_t j = 0; j < n; j += 2 * kAmxWords) {
    for (int64_t i = 0; i < m; i += 2 * kAmxRows) {
      if (c.far) PrefetchSums(c.data + (i + 2 * kAmxRows) * c.row + j, c.row, m - i - 2 * kAmxRows);
      kBlocks[i + kAmxRows < m][j + kAmxWords < n](
          a, a.data + i / kAmxRows * a.next, b, b.data + j / kAmxWords * b.next, c.data + i * c.row + j, c.row, k, add);
    }
  }
}

void PackTileOfA(const AmxSource& x, int64_t i, int64_t p, uint32_t* to) { PackTile(x, i, p, false, to); }
void PackTileOfB(const AmxSource& x, int64_t i, int64_t p, uint32_t* to) { PackTile(x, i, p, true, to); }

AVX_FUNCTION void FinishAmx(const AmxSums& x, int64_t m, int64_t n, const AmxEpilogue& e) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; j += kAmxWords) {
      const auto lanes = static_cast<__mmask16>(n - j < kAmxWords ? (1 << (n - j)) - 1 : 0xffff);
      __m512 y = _mm512_loadu_ps(x.data + i * x.row + j);
      if (e.bias != nullptr) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(lanes, e.bias + j));
      const int64_t at = i * e.row + j;
      if (e.old != nullptr) y = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, e.old + at), y);
      if (e.floats != nullptr) {
        _mm512_mask_storeu_ps(e.floats + at, lanes, y);
      } else {
        const __m256bh rounded = _mm512_cvtneps_pbh(y);
        _mm256_mask_storeu_epi16(e.halves + at, lanes, reinterpret_cast<const __m256i&>(rounded));
      }
    }
  }
}

}  // namespace onnxtrain::cpu

#else  // AMX is of x86-64, and its permission of Linux

#include <cstdlib>

namespace onnxtrain::cpu {

bool HasAmx() { return false; }
AmxScope::AmxScope() { std::abort(); }
AmxScope::~AmxScope() = default;
void MultiplyAmx(const AmxTiles&, const AmxTiles&, const AmxSums&, int64_t, int64_t, int64_t, bool) { std::abort(); }
void PackTileOfA(const AmxSource&, int64_t, int64_t, uint32_t*) { std::abort(); }
void PackTileOfB(const AmxSource&, int64_t, int64_t, uint32_t*) { std::abort(); }
void FinishAmx(const AmxSums&, int64_t, int64_t, const AmxEpilogue&) { std::abort(); }

}  // namespace onnxtrain::cpu
#endif
