// Computes attention without a tensor of all scores: multiplies a block of queries by all keys of one head. The
// backward pass recomputes the probabilities (Dao et al., FlashAttention, 2022; here a row of scores is short enough to
// be kept whole, so that softmax needs no running maximum).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "backends/cpu/kernels/row_functions.h"
#include "backends/cpu/kernels/visible_keys.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"

namespace onnxtrain::cpu {

// The elements that products multiply, of four bytes: floats, or pairs of bf16 for a dot product instruction.
template <typename S>
using GemmElement = std::conditional_t<std::is_same_v<S, float>, float, uint32_t>;

template <typename F>
struct Matrix {
  const F* data;
  int64_t row, column;  // strides
};

// Scores of a block of queries: rows `ld` floats apart, a multiple of 16. The kernel may overwrite the elements of a
// row after its first `keys`.
struct ScoreRows {
  float* data;
  int64_t ld, rows, keys;
};

// Factors per score, in rows like those of the scores; null if there are none.
struct ScoreFactors {
  const float* kept = nullptr;   // the dropout's factors of probabilities and their gradients
  const float* slope = nullptr;  // the softcap's factors of gradients of scores
};

// The vector functions for operands stored as S.
template <typename S>
struct AttentionSimd {
  using F = GemmElement<S>;
  // Computes c[m,n] = a·b, or adds a·b to c. The rows of b [k,n] and c are contiguous, ldb and ldc elements apart.
  void (*multiply)(const Matrix<F>& a, const F* b, int64_t ldb, float* c, int64_t ldc, int64_t m, int64_t n, int64_t k,
                   bool add);
  // Computes c[m,n] = a·bᵀ. The rows of a, b [n,k] and c are contiguous.
  void (*multiply_transposed)(const Matrix<F>& a, const F* b, int64_t ldb, float* c, int64_t ldc, int64_t m, int64_t n,
                              int64_t k);
  // Transposes up to 16 rows of x to to[columns, 16], padded with zeros; the rows of `to` are `width` apart.
  void (*pack_tile)(const F* x, int64_t row, int64_t rows, int64_t columns, F* to, int64_t width);
  // Returns the maximum over rows of Σ x²; NaN if x has one.
  float (*largest_square)(const S* x, int64_t row, int64_t column, int64_t rows, int64_t columns);
  // Replaces scores by e^(s·scale + mask − the row's maximum), as elements S from the start of each row or as floats.
  // `inverse` is 1 over the sum of each row. mask may be null; mask_column is 0 or 1.
  void (*softmax)(const ScoreRows& s, float scale, const float* mask, int64_t mask_row, int64_t mask_column,
                  float* inverse);
  void (*softmax_floats)(const ScoreRows& s, float scale, const float* mask, int64_t mask_row, int64_t mask_column,
                         float* inverse);
  // Computes s = cap·tanh(s·scale/cap). `slopes`, if not null, is 1 − tanh², in rows like those of s.
  void (*softcap)(const ScoreRows& s, float scale, float cap, float* slopes);
  // Normalizes p to probabilities and replaces dp by the gradient of scores. For bf16, p and dp become pairs of
  // adjacent rows, stored in place of the first one, and `across` is the gradient as pairs of adjacent columns.
  void (*score_grads)(const ScoreRows& p, float* dp, float scale, const float* inverse, const ScoreFactors& factors,
                      F* across);
  void (*scale)(const float* x, int64_t n, float by, S* to);
  // Interleaves two rows of bf16 as pairs.
  void (*pack_column_pairs)(const uint16_t* first, const uint16_t* second, int64_t n, uint32_t* to);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/attention-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/attention-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(PairAttentionTable);

HWY_EXPORT(FloatAttentionTable);
namespace {

constexpr int64_t kScoresInCache = 1 << 16;  // scores of a block of queries
constexpr int64_t kMaxQueries = 48;          // queries of a block
constexpr int64_t kTile = 16;                // rows of a transposed tile
constexpr int64_t kFewQueries = 8;           // so few read keys and values where they are

template <typename S>
const AttentionSimd<S>& Simd();
template <>
const AttentionSimd<float>& Simd() {
  return HWY_DYNAMIC_DISPATCH(FloatAttentionTable)();
}
template <>
const AttentionSimd<uint16_t>& Simd() {
  return HWY_DYNAMIC_DISPATCH(PairAttentionTable)();
}

template <typename S>
constexpr bool kIsBf16 = !std::is_same_v<S, float>;

// Returns the number of GemmElements that n elements are packed into.
template <typename S>
int64_t NumGemmElements(int64_t n) {
  return kIsBf16<S> ? (n + 1) / 2 : n;
}

// The extents and strides of the matrices [rows, columns] of all heads.
struct Heads {
  Shape batch_strides;
  int64_t rows, columns, row, column;  // extents, strides
};

Heads MakeHeads(const StridedType& t) {
  const size_t r = t.shape.size();
  return {Shape(t.strides.begin(), t.strides.end() - 2), t.shape[r - 2], t.shape[r - 1], t.strides[r - 2],
          t.strides[r - 1]};
}

// Copies `rows` rows from `first` on to contiguous rows; pairs have adjacent columns.
template <typename S>
void Gather(const Heads& h, const S* from, int64_t first, int64_t rows, GemmElement<S>* to) {
  const int64_t factors = NumGemmElements<S>(h.columns);
  for (int64_t i = 0; i < rows; ++i) {
    const S* x = from + (first + i) * h.row;
    to[(i + 1) * factors - 1] = 0;
    S* y = reinterpret_cast<S*>(to + i * factors);
    if (h.column == 1) {
      std::copy_n(x, h.columns, y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j) y[j] = x[j * h.column];
    }
  }
}

// Returns true if products can read the rows without a copy.
template <typename S>
bool IsDirectlyReadable(const Heads& h) {
  return h.column == 1 && (!kIsBf16<S> || (h.columns % 2 == 0 && h.row % 2 == 0));
}

template <typename S>
Matrix<GemmElement<S>> GatherRows(const Heads& h, const S* from, int64_t first, int64_t rows, GemmElement<S>* scratch) {
  if (IsDirectlyReadable<S>(h))
    return {reinterpret_cast<const GemmElement<S>*>(from + first * h.row), NumGemmElements<S>(h.row), 1};
  Gather(h, from, first, rows, scratch);
  return {scratch, NumGemmElements<S>(h.columns), 1};
}

// Copies all rows; pairs have adjacent rows.
void GatherColumnPairs(const Heads& h, const float* from, float* to) { Gather(h, from, 0, h.rows, to); }

void GatherColumnPairs(const Heads& h, const uint16_t* from, uint32_t* to) {
  for (int64_t i = 0; i < h.rows; i += 2) {
    const uint16_t *first = from + i * h.row, *second = first + h.row;
    uint32_t* y = to + i / 2 * h.columns;
    if (i + 1 == h.rows) {
      for (int64_t j = 0; j < h.columns; ++j) y[j] = first[j * h.column];
    } else if (h.column == 1) {
      Simd<uint16_t>().pack_column_pairs(first, second, h.columns, y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j)
        y[j] = first[j * h.column] | static_cast<uint32_t>(second[j * h.column]) << 16;
    }
  }
}

float Narrow(float x, float) { return x; }
uint16_t Narrow(float x, uint16_t) { return FloatToBFloat16(x); }

// Writes the rows, row i multiplied by by(i).
template <typename S, typename By>
void Scatter(const Heads& h, const float* from, int64_t first, int64_t rows, By by, S* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* x = from + i * h.columns;
    S* y = to + (first + i) * h.row;
    if (h.column == 1) {
      Simd<S>().scale(x, h.columns, by(i), y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j) y[j * h.column] = Narrow(x[j] * by(i), S());
    }
  }
}

float One(int64_t) { return 1; }

int64_t Padded(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

// Transposes x [rows, depth] to panels of kPanel rows of x; the last one has the remaining rows, padded with zeros.
template <typename S>
void PackTransposed(const Matrix<GemmElement<S>>& x, int64_t rows, int64_t depth, GemmElement<S>* to) {
  const int64_t padded = Padded(rows);
  for (int64_t first = 0; first < padded; first += kPanel) {
    const int64_t width = std::min(kPanel, padded - first);
    for (int64_t j = 0; j < width; j += kTile) {
      const int64_t row = first + j;
      Simd<S>().pack_tile(x.data + row * x.row, x.row, std::min(kTile, rows - row), depth, to + j, width);
    }
    to += width * depth;
  }
}

// Computes s = a·packedᵀ for a range of keys, which begins with a panel.
template <typename S>
void MultiplyPanels(const Matrix<GemmElement<S>>& a, const GemmElement<S>* packed, int64_t depth, KeyRange keys,
                    const ScoreRows& s) {
  for (int64_t first = keys.begin; first < keys.end; first += kPanel) {
    const int64_t width = std::min(kPanel, s.ld - first);
    Simd<S>().multiply(a, packed + first * depth, width, s.data + first - keys.begin, s.ld, s.rows, width, depth,
                       false);
  }
}

// The geometry and operands of the forward and backward kernels.
struct Geometry {
  Heads q, k, v;
  std::vector<Heads> inputs;  // all but the mask, in the order of the node
  Loop heads;                 // over the batch axes; operand 0 is the number of the head, then GetHeadOperands
  float scale, softcap;
  std::optional<DropoutSpan> dropout;  // applied to probabilities
  bool has_mask = false;
  int64_t mask_row = 0, mask_column = 0;
  int64_t masks = 0;  // matrices [queries, keys] of the mask; 0: its rows are shared by queries or keys
  int64_t block;      // queries per block

  int64_t keys() const { return k.rows; }
  int64_t padded() const { return Padded(k.rows); }
};

Geometry MakeGeometry(const KernelContext& c, size_t first) {
  std::vector<StridedType> operands = GetHeadOperands(c);
  Geometry g{.q = MakeHeads(operands[first]),
             .k = MakeHeads(operands[first + 1]),
             .v = MakeHeads(operands[first + 2]),
             .inputs = {},
             .heads = {},
             .scale = static_cast<float>(c.attrs().Float("scale")),
             .softcap = static_cast<float>(c.attrs().Float("softcap")),
             .dropout = {},
             .has_mask = c.has(first + 3),
             .block = 0};
  for (size_t i = 0; i < first + 3; ++i) g.inputs.push_back(MakeHeads(operands[i]));
  const Shape& q = operands[first].shape;
  StridedType& mask = operands[first + 3];
  Shape scores = q;
  scores.back() = g.keys();
  if (c.has(first + 4)) g.dropout.emplace(c.attrs(), Type{DType::kFloat32, scores}.elements());
  mask = {scores, BroadcastStrides(mask.shape, scores)};
  if (g.has_mask) {
    g.mask_row = MakeHeads(mask).row;
    g.mask_column = MakeHeads(mask).column;
    const bool matrices = g.mask_row == g.keys() && g.mask_column == 1;
    if (matrices && g.q.rows * g.keys() != 0) g.masks = c.in(first + 3).elements() / (g.q.rows * g.keys());
  }
  const Shape batch(q.begin(), q.end() - 2);
  std::vector<Shape> strides = {Strides(batch)};
  for (const StridedType& t : operands) strides.push_back(MakeHeads(t).batch_strides);
  g.heads = MakeLoop(batch, strides);
  g.block = std::clamp<int64_t>(kScoresInCache / std::max<int64_t>(1, g.padded()) / 6 * 6, 6, kMaxQueries);
  return g;
}

// Returns an upper bound of |q·k·scale| (Cauchy–Schwarz).
template <typename S>
float BoundScores(const Geometry& g, const S* q, const S* k) {
  const auto squares = [](const Heads& h, const S* x) {
    return Simd<S>().largest_square(x, h.row, h.column, h.rows, h.columns);
  };
  return std::abs(g.scale) * std::sqrt(squares(g.q, q) * squares(g.k, k));
}

size_t GetWorkspaceBytes(const Geometry& g, size_t of_thread) {
  return of_thread * omp_get_max_threads() + g.masks * g.q.rows * sizeof(KeyRange);
}

// Prefetches the inputs of the next head, whose rows are too short for the hardware prefetcher.
template <typename S>
void PrefetchNext(const Geometry& g, const Args& args, int inputs, const OperandOffsets& at) {
  for (int k = 0; k < inputs; ++k) {
    const Heads& h = g.inputs[k];
    const S* x = args.in<S>(k) + at[1 + k] + g.heads.InnerStride(1 + k);
    for (int64_t i = 0; i < h.rows; ++i) {
      for (int64_t j = 0; j < h.columns; j += 64 / sizeof(S)) __builtin_prefetch(x + i * h.row + j * h.column, 0, 2);
    }
  }
}

// Calls f(offsets, workspace of the thread, visible keys) for every head. q, k, v and the mask are the inputs from
// `first` on.
template <typename S, typename F>
void ForHeads(const Geometry& g, size_t workspace, const Args& args, int first, F&& f) {
  auto* visible = reinterpret_cast<KeyRange*>(static_cast<char*>(args.workspace) + omp_get_max_threads() * workspace);
  const int64_t of_mask = g.q.rows * g.keys();
  Parallel(g.masks * g.q.rows, g.keys(), [&](int64_t begin, int64_t end) {
    FindVisibleKeys(args.in(first + 3) + begin * g.keys(), end - begin, g.keys(), visible + begin);
  });
  const int64_t cost = of_mask * (g.q.columns + g.v.columns);
  Parallel(g.heads.size(), cost, [&](int64_t begin, int64_t end) {
    auto* mine = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + omp_get_thread_num() * workspace);
    ForRows(g.heads, begin, end, [&](const OperandOffsets& at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        OperandOffsets here = at;
        for (int k = 0; k < g.heads.operands; ++k) here[k] += i * g.heads.InnerStride(k);
        const S* q = args.in<S>(first) + here[1 + first];
        const S* k = args.in<S>(first + 1) + here[2 + first];
        if (i + 1 < count) PrefetchNext<S>(g, args, first + 3, here);
        const bool hides = g.masks != 0 && BoundScores(g, q, k) <= kMaxScore;
        const KeyRange* ranges = hides ? visible + here[4 + first] / of_mask * g.q.rows : nullptr;
        f(here, mine, VisibleKeys{ranges, g.keys()});
      }
    });
  });
}

// Divides a workspace into aligned parts.
class WorkspaceLayout {
 public:
  int64_t operator()(int64_t words) {
    const int64_t at = size_;
    size_ += Padded(words);
    return at;
  }
  size_t bytes() const { return size_ * sizeof(float); }

 private:
  int64_t size_ = 0;
};

template <typename S>
GemmElement<S>* At(float* workspace, int64_t offset) {
  return reinterpret_cast<GemmElement<S>*>(workspace + offset);
}

// Returns the number of GemmElements of scratch memory that GatherRows needs.
template <typename S>
int64_t GetScratchElements(const Heads& h, int64_t rows) {
  return IsDirectlyReadable<S>(h) ? 0 : rows * NumGemmElements<S>(h.columns);
}

// One head of a run.
struct Head {
  int64_t number = 0;
  const float* mask = nullptr;           // null: none
  const uint32_t* random_key = nullptr;  // of the dropout
};

// The scores of a block of queries of a head.
struct ScoreBlock {
  ScoreRows rows;
  const Head& head;
  int64_t query, key;  // the first ones

  // Returns the mask of the first query and key.
  const float* mask(const Geometry& g) const {
    return head.mask == nullptr ? nullptr : head.mask + query * g.mask_row + key * g.mask_column;
  }
};

// Caps scores q·k if there is a softcap. Returns the factor by which they must still be multiplied.
template <typename S>
float CapScores(const Geometry& g, const ScoreRows& s, float* slopes) {
  if (g.softcap == 0) return g.scale;
  Simd<S>().softcap(s, g.scale, g.softcap, slopes);
  return 1;
}

// Applies the dropout to rows of probabilities in place.
void DropRows(const Geometry& g, const ScoreBlock& b, float* rows) {
  for (int64_t i = 0; i < b.rows.rows; ++i) {
    const int64_t element = (b.head.number * g.q.rows + b.query + i) * g.keys() + b.key;
    g.dropout->Run(b.head.random_key, element, rows + i * b.rows.ld, b.rows.keys, rows + i * b.rows.ld);
  }
}

// Replaces scores q·k by unnormalized probabilities after the dropout, in elements S. Multiplied by `inverse`, they are
// probabilities.
template <typename S>
void ComputeProbabilities(const Geometry& g, const ScoreBlock& b, float* inverse) {
  const ScoreRows& s = b.rows;
  const float scale = CapScores<S>(g, s, nullptr);
  if (!g.dropout) return Simd<S>().softmax(s, scale, b.mask(g), g.mask_row, g.mask_column, inverse);
  Simd<S>().softmax_floats(s, scale, b.mask(g), g.mask_row, g.mask_column, inverse);
  DropRows(g, b, s.data);
  if constexpr (kIsBf16<S>) {
    for (float* row = s.data; row < s.data + s.rows * s.ld; row += s.ld)
      Simd<S>().scale(row, Padded(s.keys), 1, reinterpret_cast<S*>(row));
  }
}

// Returns true if few queries read the keys of each head, and the values if these are floats, without copies.
template <typename S>
bool ReadsInPlace(const Geometry& g) {
  const bool values = kIsBf16<S> || IsDirectlyReadable<S>(g.v);
  return g.q.rows <= kFewQueries && IsDirectlyReadable<S>(g.k) && values;
}

template <typename S>
absl::StatusOr<Kernel> PrepareAttention(const KernelContext& c) {
  const Geometry g = MakeGeometry(c, 0);
  const bool in_place = ReadsInPlace<S>(g), copies_values = !in_place || kIsBf16<S>;
  const Heads y = MakeHeads(GetHeadOperands(c).back());
  const int64_t depth = NumGemmElements<S>(g.q.columns);
  WorkspaceLayout cut;
  const int64_t rows = cut(std::max(GetScratchElements<S>(g.k, g.keys()), GetScratchElements<S>(g.q, g.block))),
                packed_k = cut(in_place ? 0 : g.padded() * depth);
  const int64_t v = cut(copies_values ? NumGemmElements<S>(g.keys()) * g.v.columns : 0), p = cut(g.block * g.padded()),
                out = cut(g.block * g.v.columns);
  const size_t bytes = cut.bytes();
  constexpr int kYAt = 5;
  return Kernel{
      .run =
          [=](const Args& args) {
            ForHeads<S>(g, bytes, args, 0, [&](const OperandOffsets& at, float* ws, const VisibleKeys& seen) {
              const auto& simd = Simd<S>();
              using F = GemmElement<S>;
              const Matrix<F> k = GatherRows(g.k, args.in<S>(1) + at[2], 0, g.keys(), At<S>(ws, rows));
              if (!in_place) PackTransposed<S>(k, g.keys(), depth, At<S>(ws, packed_k));
              if (copies_values) GatherColumnPairs(g.v, args.in<S>(2) + at[3], At<S>(ws, v));
              const F* values = copies_values ? At<S>(ws, v) : reinterpret_cast<const F*>(args.in<S>(2) + at[3]);
              const int64_t value_row = copies_values ? g.v.columns : g.v.row;
              const Head head{.number = at[0],
                              .mask = g.has_mask ? args.in(3) + at[4] : nullptr,
                              .random_key = g.dropout ? args.in<uint32_t>(4) : nullptr};
              for (int64_t first = 0; first < g.q.rows; first += g.block) {
                const int64_t count = std::min(g.block, g.q.rows - first);
                const KeyRange range = seen.By(first, count);
                const ScoreRows scores{ws + p, g.padded(), count, range.size()};
                float inverse[kMaxQueries];
                const Matrix<F> q = GatherRows(g.q, args.in<S>(0) + at[1], first, count, At<S>(ws, rows));
                if (in_place) {
                  simd.multiply_transposed(q, k.data + range.begin * k.row, k.row, scores.data, scores.ld, count,
                                           scores.keys, depth);
                } else {
                  MultiplyPanels<S>(q, At<S>(ws, packed_k), depth, range, scores);
                }
                ComputeProbabilities<S>(g, {scores, head, first, range.begin}, inverse);
                simd.multiply({At<S>(ws, p), scores.ld, 1}, values + NumGemmElements<S>(range.begin) * value_row,
                              value_row, ws + out, g.v.columns, count, g.v.columns, NumGemmElements<S>(scores.keys),
                              false);
                Scatter(
                    y, ws + out, first, count, [&](int64_t i) { return inverse[i]; }, args.out<S>() + at[kYAt]);
              }
            });
          },
      .workspace = GetWorkspaceBytes(g, bytes)};
}

// The offsets in the workspace of one head's backward pass. For bf16, operands named …_down have pairs of adjacent
// rows.
struct GradWorkspace {
  int64_t rows, packed_k, packed_v, dy, q, dy_down, q_down, k_down, p, dp, across, kept, slope, dq, dk, dv;
  size_t bytes;
};

template <typename S>
GradWorkspace MakeGradWorkspace(const Geometry& g, const Heads& dy) {
  const int64_t d = g.q.columns, e = g.v.columns, queries = g.q.rows;
  WorkspaceLayout cut;
  GradWorkspace s{};
  s.rows = cut(std::max(GetScratchElements<S>(g.k, g.keys()), GetScratchElements<S>(g.v, g.keys())));
  s.packed_k = cut(g.padded() * NumGemmElements<S>(d));
  s.packed_v = cut(g.padded() * NumGemmElements<S>(e));
  s.dy = cut(GetScratchElements<S>(dy, queries));
  s.q = cut(GetScratchElements<S>(g.q, queries));
  s.dy_down = cut(NumGemmElements<S>(queries) * e);
  s.q_down = cut(NumGemmElements<S>(queries) * d);
  s.k_down = cut(NumGemmElements<S>(g.keys()) * d);
  s.p = cut(g.block * g.padded());
  s.dp = cut(g.block * g.padded());
  s.across = kIsBf16<S> ? cut(g.block * g.padded() / 2) : s.dp;
  s.kept = cut(g.dropout ? g.block * g.padded() : 0);
  s.slope = cut(g.softcap != 0 ? g.block * g.padded() : 0);
  s.dq = cut(g.block * d);
  s.dk = cut(g.keys() * d);
  s.dv = cut(g.keys() * e);
  s.bytes = cut.bytes();
  return s;
}

// The packed operands of one head.
template <typename S>
struct HeadRows {
  Matrix<GemmElement<S>> q, dy;
};

// Replaces scores q·k by unnormalized probabilities. Returns the factors of their gradients.
template <typename S>
ScoreFactors ComputeGradFactors(const Geometry& g, const GradWorkspace& s, const ScoreBlock& b, float* ws,
                                float* inverse) {
  const ScoreFactors factors{g.dropout ? ws + s.kept : nullptr, g.softcap != 0 ? ws + s.slope : nullptr};
  const float scale = CapScores<S>(g, b.rows, ws + s.slope);
  Simd<S>().softmax_floats(b.rows, scale, b.mask(g), g.mask_row, g.mask_column, inverse);
  if (g.dropout) {
    std::fill_n(ws + s.kept, b.rows.rows * b.rows.ld, 1.0f);
    DropRows(g, b, ws + s.kept);
  }
  return factors;
}

// Computes dq of `count` queries from `first` on, a multiple of two, and adds their contributions to dk and dv.
template <typename S>
void GradBlock(const Geometry& g, const GradWorkspace& s, const HeadRows<S>& packed, const Head& head, KeyRange keys,
               int64_t first, int64_t count, float* ws) {
  const int64_t d = g.q.columns, e = g.v.columns, ld = g.padded(), depth = NumGemmElements<S>(count),
                before = NumGemmElements<S>(first);
  const auto& simd = Simd<S>();
  const ScoreRows p{ws + s.p, ld, count, keys.size()}, dp{ws + s.dp, ld, count, keys.size()};
  const int64_t down = kIsBf16<S> ? 2 * ld : ld;  // stride of the rows of GemmElements
  const Matrix<GemmElement<S>> q{packed.q.data + first * packed.q.row, packed.q.row, 1};
  const Matrix<GemmElement<S>> dy{packed.dy.data + first * packed.dy.row, packed.dy.row, 1};
  float inverse[kMaxQueries];
  MultiplyPanels<S>(q, At<S>(ws, s.packed_k), NumGemmElements<S>(d), keys, p);
  const ScoreFactors factors = ComputeGradFactors<S>(g, s, {p, head, first, keys.begin}, ws, inverse);
  MultiplyPanels<S>(dy, At<S>(ws, s.packed_v), NumGemmElements<S>(e), keys, dp);
  simd.score_grads(p, dp.data, g.scale, inverse, factors, At<S>(ws, s.across));
  simd.multiply({At<S>(ws, s.p), 1, down}, At<S>(ws, s.dy_down) + before * e, e, ws + s.dv + keys.begin * e, e,
                keys.size(), e, depth, first != 0);
  simd.multiply({At<S>(ws, s.across), NumGemmElements<S>(ld), 1},
                At<S>(ws, s.k_down) + NumGemmElements<S>(keys.begin) * d, d, ws + s.dq, d, count, d,
                NumGemmElements<S>(keys.size()), false);
  simd.multiply({At<S>(ws, s.dp), 1, down}, At<S>(ws, s.q_down) + before * d, d, ws + s.dk + keys.begin * d, d,
                keys.size(), d, depth, first != 0);
}

// Sets the rows outside of a range to zero.
void ClearOutside(KeyRange range, const Heads& h, float* rows) {
  std::fill_n(rows, range.begin * h.columns, 0.0f);
  std::fill_n(rows + range.end * h.columns, (h.rows - range.end) * h.columns, 0.0f);
}

// The operands of cpu.AttentionGrad besides q, k and v.
struct GradHeads {
  Heads dy, dq, dk, dv;
};

template <typename S>
HeadRows<S> GatherHead(const Geometry& g, const GradWorkspace& s, const Heads& dy_heads, const S* dy, const S* q,
                       const S* k, const S* v, float* ws) {
  PackTransposed<S>(GatherRows(g.k, k, 0, g.keys(), At<S>(ws, s.rows)), g.keys(), NumGemmElements<S>(g.q.columns),
                    At<S>(ws, s.packed_k));
  PackTransposed<S>(GatherRows(g.v, v, 0, g.keys(), At<S>(ws, s.rows)), g.keys(), NumGemmElements<S>(g.v.columns),
                    At<S>(ws, s.packed_v));
  GatherColumnPairs(dy_heads, dy, At<S>(ws, s.dy_down));
  GatherColumnPairs(g.q, q, At<S>(ws, s.q_down));
  GatherColumnPairs(g.k, k, At<S>(ws, s.k_down));
  return {.q = GatherRows(g.q, q, 0, g.q.rows, At<S>(ws, s.q)),
          .dy = GatherRows(dy_heads, dy, 0, g.q.rows, At<S>(ws, s.dy))};
}

template <typename S>
absl::StatusOr<Kernel> PrepareAttentionGrad(const KernelContext& c) {
  const Geometry g = MakeGeometry(c, 1);
  const std::vector<StridedType> operands = GetHeadOperands(c);
  constexpr int kOutputs = 5;  // among the operands
  const GradHeads h{MakeHeads(operands[0]), MakeHeads(operands[kOutputs]), MakeHeads(operands[kOutputs + 1]),
                    MakeHeads(operands[kOutputs + 2])};
  const GradWorkspace s = MakeGradWorkspace<S>(g, h.dy);
  return Kernel{
      .run =
          [=](const Args& args) {
            ForHeads<S>(g, s.bytes, args, 1, [&](const OperandOffsets& at, float* ws, const VisibleKeys& seen) {
              const HeadRows<S> packed = GatherHead(g, s, h.dy, args.in<S>(0) + at[1], args.in<S>(1) + at[2],
                                                    args.in<S>(2) + at[3], args.in<S>(3) + at[4], ws);
              const Head head{.number = at[0],
                              .mask = g.has_mask ? args.in(4) + at[5] : nullptr,
                              .random_key = g.dropout ? args.in<uint32_t>(5) : nullptr};
              // The first block writes its rows of dk and dv, and the others add to them.
              const KeyRange written = seen.By(0, std::min(g.block, g.q.rows));
              ClearOutside(written, g.k, ws + s.dk);
              ClearOutside(written, g.v, ws + s.dv);
              for (int64_t first = 0; first < g.q.rows; first += g.block) {
                const int64_t count = std::min(g.block, g.q.rows - first);
                GradBlock<S>(g, s, packed, head, seen.By(first, count), first, count, ws);
                Scatter(h.dq, ws + s.dq, first, count, One, args.out<S>(0) + at[1 + kOutputs]);
              }
              Scatter(h.dk, ws + s.dk, 0, g.keys(), One, args.out<S>(1) + at[2 + kOutputs]);
              Scatter(h.dv, ws + s.dv, 0, g.keys(), One, args.out<S>(2) + at[3 + kOutputs]);
            });
          },
      .workspace = GetWorkspaceBytes(g, s.bytes)};
}

// The mask stays float32 and the key uint32.
constexpr TypeSet kFloatTypes = kFloat | Only(DType::kUInt32), kPairTypes = kFloatTypes | Only(DType::kBFloat16);

}  // namespace

std::span<const KernelRow> AttentionKernels() {
  static constexpr KernelRow kRows[] = {
      {"cpu.Attention", PrepareAttention<float>, kFloatTypes},
      {"cpu.AttentionGrad", PrepareAttentionGrad<float>, kFloatTypes},
      {"cpu.Attention", PrepareAttention<uint16_t>, kPairTypes},
      {"cpu.AttentionGrad", PrepareAttentionGrad<uint16_t>, kPairTypes},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
