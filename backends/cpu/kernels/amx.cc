#include "backends/cpu/kernels/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Computes kRows × kColumns tiles of c. Tiles 0 to 3 are c, 4 and 5 rows of a, 6 and 7 columns of b.
template <int kRows, int kColumns>
AMX_FUNCTION void MultiplyTiles(const uint32_t* a, int64_t a_bytes, const uint32_t* b, int64_t b_bytes, float* c,
                                int64_t c_bytes, int64_t k, bool add) {
  float* below = c + kAmxRows * (c_bytes / 4);
  if (add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kColumns == 2) _tile_loadd(1, c + kAmxWords, c_bytes);
    if constexpr (kRows == 2) _tile_loadd(2, below, c_bytes);
    if constexpr (kRows * kColumns == 4) _tile_loadd(3, below + kAmxWords, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (kColumns == 2) _tile_zero(1);
    if constexpr (kRows == 2) _tile_zero(2);
    if constexpr (kRows * kColumns == 4) _tile_zero(3);
  }
  const uint32_t* a_below = a + kAmxRows * (a_bytes / 4);
  for (int64_t p = 0; p < k; p += kAmxWords) {
    const uint32_t* row = b + p * (b_bytes / 4);
    _tile_loadd(4, a + p, a_bytes);
    _tile_loadd(6, row, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) {
      _tile_loadd(7, row + kAmxWords, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRows == 2) {
      _tile_loadd(5, a_below + p, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kRows * kColumns == 4) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kColumns == 2) _tile_stored(1, c + kAmxWords, c_bytes);
  if constexpr (kRows == 2) _tile_stored(2, below, c_bytes);
  if constexpr (kRows * kColumns == 4) _tile_stored(3, below + kAmxWords, c_bytes);
}

}  // namespace

bool HasAmx() {
  static const bool has = ProcessorHasAmx() && SystemAllowsAmx();
  return has && (hwy::SupportedTargets() & HWY_AVX3) != 0;
}

AmxScope::AmxScope() { Configure(); }
AmxScope::~AmxScope() { Release(); }

void MultiplyAmx(const RowMajor<const uint32_t>& a, const RowMajor<const uint32_t>& b, const RowMajor<float>& c,
                 int64_t m, int64_t n, int64_t k, bool add) {
  constexpr int64_t kBytes = 4;
  constexpr decltype(&MultiplyTiles<1, 1>) kBlocks[2][2] = {{MultiplyTiles<1, 1>, MultiplyTiles<1, 2>},
                                                            {MultiplyTiles<2, 1>, MultiplyTiles<2, 2>}};
  asm volatile("" ::: "memory");  // loads of tiles do not say that they read memory
  for (int64_t j = 0; j < n; j += 2 * kAmxWords) {
    for (int64_t i = 0; i < m; i += 2 * kAmxRows) {
      const auto multiply = kBlocks[i + kAmxRows < m][j + kAmxWords < n];
      multiply(a.data + i * a.row, a.row * kBytes, b.data + j, b.row * kBytes, c.data + i * c.row + j, c.row * kBytes,
               k, add);
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
void MultiplyAmx(const RowMajor<const uint32_t>&, const RowMajor<const uint32_t>&, const RowMajor<float>&, int64_t,
                 int64_t, int64_t, bool) {
  std::abort();
}

}  // namespace onnxtrain::cpu
#endif
