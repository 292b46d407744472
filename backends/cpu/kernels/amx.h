// Products of bf16 in the tile registers of AMX (Intel, Advanced Matrix Extensions): 16 rows of 16 pairs of bf16, or of
// 16 floats.
#pragma once

#include <cstdint>

namespace onnxtrain::cpu {

constexpr int64_t kAmxRows = 16;   // of a tile
constexpr int64_t kAmxWords = 16;  // of 32 bits in a row of a tile

// Returns true if the processor multiplies tiles of bf16, Linux lets this process use them, and vector functions are
// those of AVX-512. The first call asks Linux, which saves 8 KiB more for each thread that uses tiles from then on.
bool HasAmx();

// Configures the tiles of this thread for MultiplyAmx. oneDNN's primitives must not run meanwhile.
class AmxScope {
 public:
  AmxScope();
  ~AmxScope();
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};

// A row-major matrix; rows are `row` elements apart.
template <typename T>
struct RowMajor {
  T* data;
  int64_t row;
};

// Computes c[m,n] = a·b, or adds a·b to c, with sums in float32. a[m,k] has pairs of bf16 from adjacent columns, b[k,n]
// from adjacent rows. m, n and k are multiples of 16. Denormal numbers count as zero.
void MultiplyAmx(const RowMajor<const uint32_t>& a, const RowMajor<const uint32_t>& b, const RowMajor<float>& c,
                 int64_t m, int64_t n, int64_t k, bool add);

}  // namespace onnxtrain::cpu
