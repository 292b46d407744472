#include "backends/cpu/kernels/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "hwy/targets.h"
#include "oneapi/dnnl/dnnl.h"

namespace onnxtrain::cpu {
namespace {

// Returns true if CPUID names the tiles, their products of bf16, and the same of AVX-512, for which pairs are packed.
bool ProcessorHasAmx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kBf16Products = 1u << 22, kTiles = 1u << 24, kAvx512Bf16 = 1u << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16Products) == 0 || (d & kTiles) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvx512Bf16) != 0;
}

// ONEDNN_MAX_CPU_ISA limits our kernels, too.
bool OneDnnAllowsAmx() {
  const auto tiles = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_amx);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & tiles) == tiles;
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

// Tiles 0 to 3 are of the result, 4 and 5 of rows of a, 6 and 7 of columns of b.
template <int kRows>
AMX_FUNCTION inline void LoadA(const uint32_t* data, int64_t next, int64_t row) {
  _tile_loadd(4, data, row);
  if constexpr (kRows == 2) _tile_loadd(5, data + next, row);
}

template <int kColumns>
AMX_FUNCTION inline void LoadB(const uint32_t* data, int64_t next, int64_t row) {
  _tile_loadd(6, data, row);
  if constexpr (kColumns == 2) _tile_loadd(7, data + next, row);
}

template <int kRows, int kColumns>
AMX_FUNCTION inline void MultiplyLoaded() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRows * kColumns == 4) _tile_dpbf16ps(3, 5, 7);
}

// Computes kRows × kColumns tiles of c from the tiles of a and b at `a_data` and `b_data`. Copies of AmxTiles would
// pass through the stack, where wide loads wait for narrow stores.
template <int64_t kParts, int kRows, int kColumns>
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
    LoadA<kRows>(a_data, a.next, a_row);
    if constexpr (kParts == kAmxParts<float>) {
      // Products of parts i and j with i + j < 3; one factor stays loaded.
      LoadB<kColumns>(b_data + 2 * kAmxTileWords, b.next, b_row);
      MultiplyLoaded<kRows, kColumns>();
      LoadB<kColumns>(b_data, b.next, b_row);
      MultiplyLoaded<kRows, kColumns>();
      LoadA<kRows>(a_data + 2 * kAmxTileWords, a.next, a_row);
      MultiplyLoaded<kRows, kColumns>();
      LoadA<kRows>(a_data + kAmxTileWords, a.next, a_row);
      MultiplyLoaded<kRows, kColumns>();
      LoadB<kColumns>(b_data + kAmxTileWords, b.next, b_row);
      MultiplyLoaded<kRows, kColumns>();
      LoadA<kRows>(a_data, a.next, a_row);
    } else {
      LoadB<kColumns>(b_data, b.next, b_row);
    }
    MultiplyLoaded<kRows, kColumns>();
  }
  _tile_stored(0, c, c_row);
  if constexpr (kColumns == 2) _tile_stored(1, c + kAmxWords, c_row);
  if constexpr (kRows == 2) _tile_stored(2, below, c_row);
  if constexpr (kRows * kColumns == 4) _tile_stored(3, below + kAmxWords, c_row);
}

}  // namespace

bool HasAmx() {
  static const bool has = ProcessorHasAmx() && OneDnnAllowsAmx() && SystemAllowsAmx();
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

template <int64_t kParts>
void MultiplyBlocks(const AmxTiles& a, const AmxTiles& b, const AmxSums& c, int64_t m, int64_t n, int64_t k, bool add) {
  constexpr decltype(&MultiplyTiles<1, 1, 1>) kBlocks[2][2] = {
      {MultiplyTiles<kParts, 1, 1>, MultiplyTiles<kParts, 1, 2>},
      {MultiplyTiles<kParts, 2, 1>, MultiplyTiles<kParts, 2, 2>}};
  asm volatile("" ::: "memory");  // loads of tiles do not say that they read memory
  for (int64_t j = 0; j < n; j += 2 * kAmxWords) {
    for (int64_t i = 0; i < m; i += 2 * kAmxRows) {
      if (c.far) PrefetchSums(c.data + (i + 2 * kAmxRows) * c.row + j, c.row, m - i - 2 * kAmxRows);
      kBlocks[i + kAmxRows < m][j + kAmxWords < n](
          a, a.data + i / kAmxRows * a.next, b, b.data + j / kAmxWords * b.next, c.data + i * c.row + j, c.row, k, add);
    }
  }
}

}  // namespace

void MultiplyAmx(const AmxTiles& a, const AmxTiles& b, const AmxSums& c, int64_t m, int64_t n, int64_t k, bool add) {
  MultiplyBlocks<kAmxParts<uint16_t>>(a, b, c, m, n, k, add);
}

void MultiplyAmxParts(const AmxTiles& a, const AmxTiles& b, const AmxSums& c, int64_t m, int64_t n, int64_t k,
                      bool add) {
  MultiplyBlocks<kAmxParts<float>>(a, b, c, m, n, k, add);
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void FinishAmx(const AmxSums& x, int64_t m, int64_t n,
                                                                       const AmxEpilogue& e) {
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
void MultiplyAmxParts(const AmxTiles&, const AmxTiles&, const AmxSums&, int64_t, int64_t, int64_t, bool) {
  std::abort();
}
void FinishAmx(const AmxSums&, int64_t, int64_t, const AmxEpilogue&) { std::abort(); }

}  // namespace onnxtrain::cpu
#endif
