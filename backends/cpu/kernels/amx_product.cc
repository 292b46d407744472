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
constexpr int64_t kMaxPacked = 4 << 20;      // bf16 of a copied chunk
constexpr int64_t kGroupSize = 1 << 19;      // bf16 of a group that stays in the second-level cache
constexpr int64_t kMaxGroup = 512;           // its rows or columns, at most
constexpr int64_t kColumnGroup = 4 * kTile;  // rows or columns of the other factor that multiply it at a time
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

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

int64_t Pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Returns piece i of [0, n).
Range Piece(int64_t i, int64_t size, int64_t n) { return {i * size, std::min((i + 1) * size, n)}; }

// One factor of the product, of bf16 or float32, and how its elements become tiles.
template <typename T>
struct Factor {
  AmxFactor kind;
  int64_t outer, k;  // rows of a or columns of b, elements of the summed axis
  int64_t outer_stride, k_stride;
  std::optional<GroupedTiles> in_place = {};  // tiles in the operand's memory, relative to its start; else copies

  // Returns the words of a copy.
  int64_t CopyWords(int64_t most_outer, int64_t most_k) const {
    return in_place ? 0 : Tiles(std::min(outer, most_outer)) * SumTiles(std::min(k, most_k)) * TileWords<T>();
  }
};

// Part of a factor.
template <typename T>
class FactorPart {
 public:
  FactorPart(const Factor<T>& f, const Args& args, Range outer, Range k, uint32_t* copy)
      : f_(f), outer_(outer), k_(k), copy_(copy), data_(args.in<T>(f.kind == AmxFactor::kA ? 0 : 1)) {}

  // Returns the number of tiles that must be copied before products read them.
  int64_t copies() const { return f_.in_place ? 0 : OuterTiles() * Depth(); }

  // Copies tiles [begin, end), in the order of the operand's memory.
  void Copy(int64_t begin, int64_t end) const {
    const AmxSource<T> source{data_ + outer_.begin * f_.outer_stride + k_.begin * f_.k_stride, outer_.size(), k_.size(),
                              f_.outer_stride, f_.k_stride};
    const int64_t down = Depth(), across = OuterTiles();
    const bool outer_lies_in_rows = f_.outer_stride == 1;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = outer_lies_in_rows ? t % across : t / down, p = outer_lies_in_rows ? t / across : t % down;
      PackAmxTile(source, i, p, f_.kind, copy_ + (i * down + p) * TileWords<T>());
    }
  }

  GroupedTiles tiles() const {
    if (!f_.in_place) {
      const int64_t next = Depth() * TileWords<T>();
      return {{copy_, kAmxWords, TileWords<T>(), next}, kColumnGroup / kTile * next};
    }
    GroupedTiles tiles = *f_.in_place;
    tiles.data = reinterpret_cast<const uint32_t*>(data_);
    tiles.data = tiles.From(outer_.begin, k_.begin).data;
    return tiles;
  }

 private:
  int64_t OuterTiles() const { return Tiles(outer_.size()); }
  int64_t Depth() const { return SumTiles(k_.size()); }

  const Factor<T>& f_;
  Range outer_, k_;
  uint32_t* copy_;
  const T* data_;
};

void LoadBias(const Args& args, DType dtype, int64_t column, int64_t width, float* bias) {
  for (int64_t c = 0; c < width; ++c)
    bias[c] = dtype == DType::kFloat32 ? args.in(2)[column + c] : BFloat16ToFloat(args.in<uint16_t>(2)[column + c]);
}

// Multiplies groups of one factor, the near one, by chunks of the other, the far one. All threads copy a chunk of the
// far factor; the thread that multiplies a group of the near factor copies it to its own cache.
template <typename T>
class AmxProduct {
 public:
  AmxProduct(const Factor<T>& a, const Factor<T>& b, const Epilogue& e)
      : a_(a),
        b_(b),
        e_(e),
        near_is_a_(b.in_place || (!a.in_place && a.outer >= b.outer)),
        chunk_k_(std::min(a.k, kMaxSum / kAmxParts<T> / kPairs * kPairs)),
        chunk_(far().in_place ? far().outer : ChooseChunk()),
        group_(ChooseGroup()),
        sums_in_scratch_(e.out == DType::kBFloat16 && chunk_k_ < a.k) {}

  size_t workspace() const {
    return 4 * (omp_get_max_threads() * thread_words() + far().CopyWords(chunk_, chunk_k_) + sums_words());
  }

  void Run(const Args& args) const {
    auto* words = static_cast<uint32_t*>(args.workspace);
    Chunk s{.args = args, .of_threads = words};
    words += omp_get_max_threads() * thread_words();
    s.sums = sums_in_scratch_ ? reinterpret_cast<float*>(words) : e_.out == DType::kFloat32 ? args.out() : nullptr;
    words += sums_words();
    if (e_.adds) CopyOver(args.in(3), args.out(), a_.outer * b_.outer);
    for (s.k.begin = 0; s.k.begin < a_.k; s.k.begin = s.k.end) {
      s.k.end = std::min(a_.k, s.k.begin + chunk_k_);
      for (int64_t i = 0; i < Pieces(far().outer, chunk_); ++i) {
        s.far = Piece(i, chunk_, far().outer);
        const FactorPart<T> part(far(), args, s.far, s.k, words);
        Parallel(part.copies(), TileWords<T>(), [&](int64_t begin, int64_t end) { part.Copy(begin, end); });
        s.far_tiles = part.tiles();
        MultiplyChunk(s);
      }
    }
  }

 private:
  static constexpr int64_t kScratch = kMaxGroup * (kColumnGroup + kTile);  // floats of a thread
  static constexpr int64_t kHeader = 16;                                   // words of a thread

  // A chunk of the far factor and of the sums.
  struct Chunk {
    const Args& args;
    uint32_t* of_threads;   // memory: the group whose copy a thread has, its copy, its sums
    float* sums = nullptr;  // of the whole result; null: the block alone
    Range far{}, k{};
    GroupedTiles far_tiles{};
  };

  const Factor<T>& near() const { return near_is_a_ ? a_ : b_; }
  const Factor<T>& far() const { return near_is_a_ ? b_ : a_; }

  int64_t ChooseChunk() const {
    return std::max(kColumnGroup, kMaxPacked / kAmxParts<T> / chunk_k_ / kColumnGroup * kColumnGroup);
  }

  // Returns the rows or columns of a group: as few groups as the cache allows, of nearly equal size, but more than
  // enough tasks for all threads.
  int64_t ChooseGroup() const {
    const int64_t most = std::clamp(kGroupSize / kAmxParts<T> / chunk_k_ / kBlock * kBlock, kBlock, kMaxGroup);
    int64_t groups = Pieces(near().outer, most);
    const auto size = [&] { return Pieces(Pieces(near().outer, groups), kBlock) * kBlock; };
    const int64_t across = Pieces(std::min(chunk_, far().outer), kColumnGroup);
    while (size() > kBlock && groups * across < 8 * omp_get_max_threads()) groups *= 2;
    return size();
  }

  int64_t near_words() const { return near().CopyWords(group_, chunk_k_); }
  int64_t thread_words() const { return kHeader + near_words() + kScratch; }
  int64_t sums_words() const { return sums_in_scratch_ ? Tiles(a_.outer * b_.outer) * kTile : 0; }

  void MultiplyChunk(const Chunk& s) const {
    const int64_t across = Pieces(s.far.size(), kColumnGroup);
    for (int i = 0; i < omp_get_max_threads(); ++i) s.of_threads[i * thread_words()] = 0;
    Parallel(Pieces(near().outer, group_) * across, group_ * kColumnGroup * s.k.size() / 64,
             [&](int64_t begin, int64_t end) {
               const AmxScope scope;
               uint32_t* mine = s.of_threads + omp_get_thread_num() * thread_words();
               for (int64_t t = begin; t < end; ++t) MultiplyTask(s, t / across, t % across, mine);
             });
  }

  // Multiplies group i of the near factor by group j of the chunk.
  void MultiplyTask(const Chunk& s, int64_t i, int64_t j, uint32_t* mine) const {
    const Range near_range = Piece(i, group_, near().outer), in_chunk = Piece(j, kColumnGroup, s.far.size());
    const FactorPart<T> part(near(), s.args, near_range, s.k, mine + kHeader);
    const auto number = static_cast<uint32_t>(i + 1);
    if (mine[0] != number) part.Copy(0, part.copies());
    mine[0] = number;
    const Range far_range{s.far.begin + in_chunk.begin, s.far.begin + in_chunk.end};
    const GroupedTiles tiles = part.tiles();
    GroupedTiles others = s.far_tiles;
    others.data = others.From(in_chunk.begin).data;
    auto* scratch = reinterpret_cast<float*>(mine + kHeader + near_words());
    near_is_a_ ? MultiplyGroup(s, near_range, tiles, far_range, others, scratch)
               : MultiplyGroup(s, far_range, others, near_range, tiles, scratch);
  }

  // Computes a group of rows and columns of the result.
  void MultiplyGroup(const Chunk& s, Range rows, const GroupedTiles& a, Range columns, const GroupedTiles& b,
                     float* scratch) const {
    const int64_t m = Tiles(rows.size()) * kTile, n = Tiles(columns.size()) * kTile;
    const int64_t at = rows.begin * b_.outer + columns.begin;
    const bool adds = s.k.begin != 0 || e_.adds, ends = s.k.end == a_.k;
    const bool finishes = ends && (e_.bias || s.sums != s.args.out());
    const bool in_place = s.sums != nullptr && !finishes && rows.size() == m && columns.size() == n;
    AmxSums sums = in_place ? AmxSums{s.sums + at, b_.outer, true} : AmxSums{scratch, AvoidSets(n)};
    // The tiles of 32 columns of bf16 stay in the first-level cache meanwhile.
    constexpr auto kMultiply = kAmxParts<T> == 1 ? MultiplyAmx : MultiplyAmxParts;
    const int64_t sections = Pieces(s.k.size(), kMostOfSum);
    const int64_t section = Pieces(SumTiles(s.k.size()), sections) * kPairs;
    for (int64_t k = 0; k < s.k.size(); k += section) {
      const int64_t words = SumTiles(std::min(section, s.k.size() - k)) * kAmxWords;
      kMultiply(a.From(0, k), b.From(0, k), sums, m, n, words, k != 0 || (in_place && adds));
      sums.far = false;
    }
    if (in_place) return;
    float bias[kMaxGroup];
    if (finishes && e_.bias) LoadBias(s.args, e_.bias_type, columns.begin, columns.size(), bias);
    const bool halves = ends && e_.out == DType::kBFloat16;
    FinishAmx(sums, rows.size(), columns.size(),
              {.bias = finishes && e_.bias ? bias : nullptr,
               .old = adds ? s.sums + at : nullptr,
               .floats = halves ? nullptr : s.sums + at,
               .halves = halves ? s.args.template out<uint16_t>() + at : nullptr,
               .row = b_.outer});
  }

  Factor<T> a_, b_;
  Epilogue e_;
  bool near_is_a_;
  int64_t chunk_k_, chunk_;  // elements of the summed axis; rows or columns of the far factor
  int64_t group_;            // rows or columns of the near factor
  bool sums_in_scratch_;
};

template <typename T>
Factor<T> MakeA(const Product& p) {
  const size_t r = p.y.size();
  return {AmxFactor::kA, p.m, p.k, p.a_strides[r - 2], p.a_strides[r - 1]};
}

template <typename T>
Factor<T> MakeB(const Product& p) {
  const size_t r = p.y.size();
  return {AmxFactor::kB, p.n, p.k, p.b_strides[r - 1], p.b_strides[r - 2]};
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
    a.in_place = GroupedTiles{{nullptr, row, kAmxWords, kTile * row}, kColumnGroup * row};
  }
  if (packed != nullptr) {
    const std::optional<PairBlocks> blocks = GetPairBlocks(*packed);
    if (!blocks || blocks->height != kAmxWords || blocks->width != kColumnGroup) return {};
    b.in_place = GroupedTiles{{nullptr, blocks->width, blocks->row_step, kAmxWords}, blocks->column_step};
  }
  return MakeKernel(a, b, e);
}

}  // namespace onnxtrain::cpu
