#include "backends/cpu/kernels/amx_product.h"

#include <omp.h>

#include <algorithm>

#include "backends/cpu/kernels/amx.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kTile = kAmxRows, kPairs = 2 * kAmxWords;  // rows or columns of a tile; elements of the summed axis
// Extents that fit the caches; a float32 counts as three bf16.
constexpr int64_t kMaxSum = 4096;            // bf16 that are summed up before the next ones are packed
constexpr int64_t kMaxPacked = 4 << 20;      // bf16 of a packed factor
constexpr int64_t kGroupSize = 1 << 19;      // bf16 of a that stay in the second-level cache
constexpr int64_t kRowGroup = 512;           // their rows, at most
constexpr int64_t kColumnGroup = 4 * kTile;  // columns of b that are multiplied by them at a time
constexpr int64_t kBlock = 2 * kTile;        // rows whose sums stay in registers
constexpr int64_t kMostOfSum = 768;          // elements of the summed axis before the sums leave registers

constexpr int64_t kLeastWork = 1 << 20;  // multiplications for which packing pays
// An element of float32 takes longer to pack: it must be multiplied so often that the harmonic mean of m and n is twice
// this. Shorter sums do not repay their loads and stores.
constexpr int64_t kLeastFloatReuse = 160, kLeastFloatSum = 128;

template <typename T>
constexpr int64_t TileWords() {
  return kAmxParts<T> * kAmxTileWords;
}

int64_t Tiles(int64_t n) { return (n + kTile - 1) / kTile; }
int64_t SumTiles(int64_t k) { return (k + kPairs - 1) / kPairs; }

// Tiles whose groups of kColumnGroup rows or columns are `group` words apart.
struct GroupedTiles : AmxTiles {
  int64_t group;

  // Returns the tiles from element i of the outer axis and p of the summed axis on.
  AmxTiles From(int64_t i, int64_t p = 0) const {
    AmxTiles tiles = *this;
    tiles.data += i / kColumnGroup * group + i % kColumnGroup / kTile * next + p / kPairs * step;
    return tiles;
  }
};

// One factor of the product, of bf16 or float32, and how the elements of a chunk of it become tiles.
template <typename T>
struct Factor {
  int64_t outer, k;  // rows of a or columns of b, elements of the summed axis
  int64_t outer_stride, k_stride;
  int64_t chunk_outer, chunk_k;
  std::optional<GroupedTiles> in_place = {};  // tiles in the operand's memory, relative to its start; else copies

  int64_t packed_words() const { return in_place ? 0 : Tiles(chunk_outer) * SumTiles(chunk_k) * TileWords<T>(); }
};

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Returns the tiles of a chunk; packs them into `scratch` unless products can read them where they are.
template <typename T>
GroupedTiles GetTiles(const Factor<T>& f, const T* data, Range outer, Range k, AmxFactor factor, uint32_t* scratch) {
  if (f.in_place) {
    GroupedTiles tiles = *f.in_place;
    tiles.data = reinterpret_cast<const uint32_t*>(data);
    tiles.data = tiles.From(outer.begin, k.begin).data;
    return tiles;
  }
  const AmxSource<T> source{data + outer.begin * f.outer_stride + k.begin * f.k_stride, outer.size(), k.size(),
                            f.outer_stride, f.k_stride};
  const int64_t down = SumTiles(k.size()), across = Tiles(outer.size());
  const bool outer_lies_in_rows = f.outer_stride == 1;  // packs in the order of memory
  Parallel(across * down, TileWords<T>(), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = outer_lies_in_rows ? t % across : t / down, p = outer_lies_in_rows ? t / across : t % down;
      PackAmxTile(source, i, p, factor, scratch + (i * down + p) * TileWords<T>());
    }
  });
  return {{scratch, kAmxWords, TileWords<T>(), down * TileWords<T>()}, kColumnGroup / kTile * down * TileWords<T>()};
}

// A chunk of the product.
struct Chunk {
  const Args& args;
  float* scratch;         // of all threads
  float* sums = nullptr;  // of the whole result; null: the block alone
  Range rows{}, columns{}, k{};
  GroupedTiles a{}, b{};
};

void LoadBias(const Args& args, DType dtype, int64_t column, int64_t width, float* bias) {
  for (int64_t c = 0; c < width; ++c)
    bias[c] = dtype == DType::kFloat32 ? args.in(2)[column + c] : BFloat16ToFloat(args.in<uint16_t>(2)[column + c]);
}

// Multiplies chunks, whose copies are small, in groups of rows and columns, which fit the caches.
template <typename T>
class AmxProduct {
 public:
  AmxProduct(const Factor<T>& a, const Factor<T>& b, const Epilogue& e)
      : a_(a), b_(b), e_(e), sums_in_scratch_(e.out == DType::kBFloat16 && a.chunk_k < a.k) {}

  size_t workspace() const {
    return 4 * (a_.packed_words() + b_.packed_words() + sums_words() + omp_get_max_threads() * kScratch);
  }

  void Run(const Args& args) const {
    auto* words = static_cast<uint32_t*>(args.workspace);
    Chunk s{.args = args, .scratch = reinterpret_cast<float*>(words)};
    words += omp_get_max_threads() * kScratch;
    s.sums = sums_in_scratch_ ? reinterpret_cast<float*>(words) : e_.out == DType::kFloat32 ? args.out() : nullptr;
    words += sums_words();
    if (e_.adds) CopyOver(args.in(3), args.out(), a_.outer * b_.outer);
    for (s.k.begin = 0; s.k.begin < a_.k; s.k.begin = s.k.end) {
      s.k.end = std::min(a_.k, s.k.begin + a_.chunk_k);
      for (s.columns.begin = 0; s.columns.begin < b_.outer; s.columns.begin = s.columns.end) {
        s.columns.end = std::min(b_.outer, s.columns.begin + b_.chunk_outer);
        s.b = GetTiles(b_, args.in<T>(1), s.columns, s.k, AmxFactor::kB, words + a_.packed_words());
        for (s.rows.begin = 0; s.rows.begin < a_.outer; s.rows.begin = s.rows.end) {
          s.rows.end = std::min(a_.outer, s.rows.begin + a_.chunk_outer);
          s.a = GetTiles(a_, args.in<T>(0), s.rows, s.k, AmxFactor::kA, words);
          MultiplyChunk(s);
        }
      }
    }
  }

 private:
  static constexpr int64_t kScratch = kRowGroup * kColumnGroup;  // floats of a thread

  int64_t sums_words() const { return sums_in_scratch_ ? Tiles(a_.outer * b_.outer) * kTile : 0; }

  void MultiplyChunk(const Chunk& s) const {
    const int64_t across = (s.columns.size() + kColumnGroup - 1) / kColumnGroup;
    int64_t group = std::clamp(kGroupSize / kAmxParts<T> / s.k.size() / kBlock * kBlock, kBlock, kRowGroup);
    const auto down = [&] { return (s.rows.size() + group - 1) / group; };
    while (group > kBlock && down() * across < 8 * omp_get_max_threads()) group = (group / 2 + kTile) / kBlock * kBlock;
    Parallel(down() * across, group * kColumnGroup * s.k.size() / 64, [&](int64_t begin, int64_t end) {
      const AmxScope scope;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t / across * group, column = t % across * kColumnGroup;
        MultiplyGroup(s, {row, std::min(row + group, s.rows.size())},
                      {column, std::min(column + kColumnGroup, s.columns.size())});
      }
    });
  }

  // Computes a group of rows and columns of the chunk.
  void MultiplyGroup(const Chunk& s, Range rows, Range columns) const {
    const int64_t m = Tiles(rows.size()) * kTile, n = Tiles(columns.size()) * kTile;
    const int64_t column = s.columns.begin + columns.begin, at = (s.rows.begin + rows.begin) * b_.outer + column;
    const bool adds = s.k.begin != 0 || e_.adds, ends = s.k.end == a_.k;
    const bool finishes = ends && (e_.bias || s.sums != s.args.out());
    const bool in_place = s.sums != nullptr && !finishes && rows.size() == m && columns.size() == n;
    AmxSums sums = in_place ? AmxSums{s.sums + at, b_.outer, true}
                            : AmxSums{s.scratch + omp_get_thread_num() * kScratch, kColumnGroup};
    // The tiles of 32 columns of bf16 stay in the first-level cache meanwhile.
    constexpr auto kMultiply = kAmxParts<T> == 1 ? MultiplyAmx : MultiplyAmxParts;
    const int64_t sections = (s.k.size() + kMostOfSum - 1) / kMostOfSum;
    const int64_t section = (SumTiles(s.k.size()) + sections - 1) / sections * kPairs;
    for (int64_t k = 0; k < s.k.size(); k += section) {
      const int64_t words = SumTiles(std::min(section, s.k.size() - k)) * kAmxWords;
      kMultiply(s.a.From(rows.begin, k), s.b.From(columns.begin, k), sums, m, n, words, k != 0 || (in_place && adds));
      sums.far = false;
    }
    if (in_place) return;
    float bias[kColumnGroup];
    if (finishes && e_.bias) LoadBias(s.args, e_.bias_type, column, columns.size(), bias);
    const bool halves = ends && e_.out == DType::kBFloat16;
    FinishAmx(sums, rows.size(), columns.size(),
              {.bias = finishes && e_.bias ? bias : nullptr,
               .old = adds ? s.sums + at : nullptr,
               .floats = halves ? nullptr : s.sums + at,
               .halves = halves ? s.args.out<uint16_t>() + at : nullptr,
               .row = b_.outer});
  }

  Factor<T> a_, b_;
  Epilogue e_;
  bool sums_in_scratch_;
};

template <typename T>
Factor<T> MakeFactor(int64_t outer, int64_t k, int64_t outer_stride, int64_t k_stride) {
  const int64_t chunk_k = std::min(k, kMaxSum / kAmxParts<T> / kPairs * kPairs);
  const int64_t most = std::max(kColumnGroup, kMaxPacked / kAmxParts<T> / chunk_k / kColumnGroup * kColumnGroup);
  return {outer, k, outer_stride, k_stride, std::min(outer, most), chunk_k};
}

template <typename T>
Factor<T> MakeA(const Product& p) {
  const size_t r = p.y.size();
  return MakeFactor<T>(p.m, p.k, p.a_strides[r - 2], p.a_strides[r - 1]);
}

template <typename T>
Factor<T> MakeB(const Product& p) {
  const size_t r = p.y.size();
  return MakeFactor<T>(p.n, p.k, p.b_strides[r - 1], p.b_strides[r - 2]);
}

void ReadInPlace(Factor<uint16_t>& f, const AmxTiles& tiles, int64_t group) {
  f.in_place = GroupedTiles{tiles, group};
  f.chunk_outer = f.outer;
}

template <typename T>
Kernel MakeKernel(const Factor<T>& a, const Factor<T>& b, const Epilogue& e) {
  const AmxProduct<T> product(a, b, e);
  return {.run = [product](const Args& args) { product.Run(args); }, .workspace = product.workspace()};
}

}  // namespace

bool PrefersAmx(int64_t m, int64_t k, int64_t n, DType dtype) {
  if (!HasAmx() || m < kTile || n < kTile || k < kPairs || m * n * k < kLeastWork) return false;
  if (dtype != DType::kFloat32) return dtype == DType::kBFloat16;
  return k >= kLeastFloatSum && m * n >= kLeastFloatReuse * (m + n);
}

std::optional<Kernel> MakeAmxProduct(const Product& p, const dnnl::memory::desc* packed, const Epilogue& e) {
  if (!p.is_single() || !PrefersAmx(p.m, p.k, p.n, e.in)) return {};
  if (e.in == DType::kFloat32) {
    if (packed != nullptr || e.out != DType::kFloat32) return {};
    return MakeKernel(MakeA<float>(p), MakeB<float>(p), e);
  }
  auto a = MakeA<uint16_t>(p), b = MakeB<uint16_t>(p);
  if (a.k_stride == 1 && a.outer_stride % 2 == 0 && a.k % kPairs == 0 && a.outer % kTile == 0 &&
      !ShareSets(a.outer_stride / 2)) {
    const int64_t row = a.outer_stride / 2;
    ReadInPlace(a, {nullptr, row, kAmxWords, kTile * row}, kColumnGroup * row);
  }
  if (packed != nullptr) {
    const std::optional<PairBlocks> blocks = GetPairBlocks(*packed);
    if (!blocks || blocks->height != kAmxWords || blocks->width != kColumnGroup) return {};
    ReadInPlace(b, {nullptr, blocks->width, blocks->row_step, kAmxWords}, blocks->column_step);
  }
  return MakeKernel(a, b, e);
}

}  // namespace onnxtrain::cpu
