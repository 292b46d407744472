// Products of bf16 and of float32 in the tile registers of AMX (Intel, Advanced Matrix Extensions): 16 rows of 16 pairs
// of bf16, or of 16 floats.
//
// A float32 is the sum of three bf16, its parts: the upper bits, the rest rounded to nearest, and what that leaves. A
// product of two is that of their parts i and j with i + j < 3; the others are below 2^-22 of it, of either sign. The
// error of a sum is that of float32, and a product with 1 is exact; tests state both. Infinity times any number is NaN;
// parts and products below 2^-126 count as zero. Henry, Tang, Heinecke, 2019, "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations", arXiv:1904.06376.
#pragma once

#include <cstdint>
#include <type_traits>

namespace onnxtrain::cpu {

constexpr int64_t kAmxRows = 16;   // of a tile
constexpr int64_t kAmxWords = 16;  // of 32 bits in a row of a tile
constexpr int64_t kAmxTileWords = kAmxRows * kAmxWords;
// The parts of an element: one of bf16 (uint16_t), three of float32.
template <typename T>
inline constexpr int64_t kAmxParts = std::is_same_v<T, float> ? 3 : 1;

// Returns true if the processor multiplies tiles of bf16, Linux and ONEDNN_MAX_CPU_ISA let this process use them, and
// vector functions are those of AVX-512. The first call asks Linux, which saves 8 KiB more for each thread that uses
// tiles from then on.
bool HasAmx();

// Configures the tiles of this thread for MultiplyAmx. oneDNN's primitives must not run meanwhile.
class AmxScope {
 public:
  AmxScope();
  ~AmxScope();
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};

// Returns true if rows of tiles that are this many words apart fall into so few sets of the first-level cache that they
// displace each other.
inline bool ShareSets(int64_t words) { return words % 512 == 0; }

// Returns a distance for rows of that many words that do not share sets, a multiple of two lines of the cache.
inline int64_t AvoidSets(int64_t words) { return ShareSets(words) ? words + 32 : words; }

// Tiles of one factor of a product, of 16 × 16 words each. Distances are in words.
struct AmxTiles {
  const uint32_t* data;
  int64_t row;   // between the rows of a tile
  int64_t step;  // to the next tile along the axis that is summed over
  int64_t next;  // to the next tile along the other axis
};

// A row-major result; rows are `row` elements apart. A result that is `far`, not in the caches, is prefetched.
struct AmxSums {
  float* data;
  int64_t row;
  bool far = false;
};

// Computes c[m,n] = a·b, or adds a·b to c, with sums in float32. Rows of a's tiles are rows of a, with pairs of bf16
// from adjacent columns; rows of b's tiles are pairs of adjacent rows of b. m and n are multiples of 16; k is in words,
// a multiple of 16. Denormal numbers count as zero.
void MultiplyAmx(const AmxTiles& a, const AmxTiles& b, const AmxSums& c, int64_t m, int64_t n, int64_t k, bool add);

// The same of float32. The tiles of an element's three parts lie one after the other.
void MultiplyAmxParts(const AmxTiles& a, const AmxTiles& b, const AmxSums& c, int64_t m, int64_t n, int64_t k,
                      bool add);

// A matrix of bf16 (T is uint16_t) or float32 as a factor of a product: `outer` rows of a or columns of b, by k
// elements of the summed axis. One of the strides, in elements, is 1.
template <typename T>
struct AmxSource {
  const T* data;
  int64_t outer, k;
  int64_t outer_stride, k_stride;
};

enum class AmxFactor : uint8_t { kA, kB };

// Copies tile (i, p) of a factor, its elements from 16·i and 32·p on, to 16 × 16 words, padded with zeros, or to three
// times as many for float32; in pairs along the summed axis: rows are those of a, or columns are those of b.
template <typename T>
void PackAmxTile(const AmxSource<T>& x, int64_t i, int64_t p, AmxFactor factor, uint32_t* to);

// The epilogue of a block of sums x computes y = x + bias + old, in floats or bf16. Rows of `old` and y are `row`
// elements apart.
struct AmxEpilogue {
  const float *bias, *old;  // of the block's first column, its first element; null: none
  float* floats;            // null: halves
  uint16_t* halves;
  int64_t row;
};

// Writes y[m,n].
void FinishAmx(const AmxSums& x, int64_t m, int64_t n, const AmxEpilogue& e);

}  // namespace onnxtrain::cpu
