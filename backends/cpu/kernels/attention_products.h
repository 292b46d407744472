// The operands of attention's products: where the rows of a head are, and their copies as products read them.
#pragma once

#include <algorithm>

#include "backends/cpu/kernels/amx.h"
#include "backends/cpu/kernels/attention_simd.h"
#include "frontend/base/small_float.h"
#include "frontend/graph/type.h"

namespace onnxtrain::cpu {

template <typename S>
constexpr bool kIsBf16 = !std::is_same_v<S, float>;

// Returns the number of GemmElements that n elements are packed into.
template <typename S>
int64_t NumGemmElements(int64_t n) {
  return kIsBf16<S> ? (n + 1) / 2 : n;
}

inline int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Returns the elements in a row of the scores of n keys, whole vectors or pairs of tiles.
inline int64_t PadScores(int64_t n, bool tiles) { return RoundUp(n, tiles ? 2 * kAmxWords : kAmxWords); }

// The extents and strides of the matrices [rows, columns] of all heads.
struct Heads {
  Shape batch_strides;
  int64_t rows, columns, row, column;  // extents, strides
};

// Multiplies matrices of elements S, whose pairs (of bf16) run along the axis that is summed over. With tiles (AMX,
// bf16 only), every extent of a copy and of a result is a multiple of 16; elements of the summed axis that the matrices
// lack must be zeros there.
template <typename S>
class AttentionProducts {
 public:
  using F = GemmElement<S>;
  static constexpr int64_t kTile = 16;  // rows of a transposed tile

  explicit AttentionProducts(bool tiles) : unit_(tiles ? kTile : 1) {}

  // Returns the extent of copies and results of n rows or columns.
  int64_t Extent(int64_t n) const { return RoundUp(n, unit_); }
  // Returns the GemmElements of n elements of the summed axis.
  int64_t Words(int64_t n) const { return RoundUp(NumGemmElements<S>(n), unit_); }
  // Returns the elements in a row of the scores of n keys.
  int64_t Scores(int64_t n) const { return PadScores(n, HasTiles()); }

  // Computes c[m,n] = a·b, or adds a·b to c, for k elements of the summed axis. Returns c.
  Matrix<const float> Multiply(const Matrix<const F>& a, const Matrix<const F>& b, const Matrix<float>& c, int64_t m,
                               int64_t n, int64_t k, bool add = false) const {
    const Matrix<const float> result{c.data, c.row, c.column};
    if constexpr (kIsBf16<S>) {
      if (HasTiles()) {
        MultiplyAmx({a.data, a.row, kTile, kTile * a.row}, {b.data, b.row, kTile * b.row, kTile}, {c.data, c.row},
                    Extent(m), Extent(n), Words(k), add);
        return result;
      }
    }
    GetAttentionSimd<S>().multiply(a, b, c, m, n, NumGemmElements<S>(k), add);
    return result;
  }

  // Returns true if products can read the rows where they are.
  bool ReadsRows(const Heads& h) const {
    if (h.column != 1 || h.rows % unit_ != 0 || (HasTiles() && ShareSets(h.row / 2))) return false;
    return !kIsBf16<S> || (h.columns % (2 * unit_) == 0 && h.row % 2 == 0);
  }

  // Returns rows [first, first + rows), in `scratch` if products cannot read them where they are.
  Matrix<const F> GatherRows(const Heads& h, const S* from, int64_t first, int64_t rows, F* scratch) const {
    if (ReadsRows(h)) return {reinterpret_cast<const F*>(from + first * h.row), NumGemmElements<S>(h.row), 1};
    const int64_t words = Words(h.columns);
    for (int64_t i = 0; i < rows; ++i) CopyRow(h, from + (first + i) * h.row, words, scratch + i * words);
    std::fill(scratch + rows * words, scratch + Extent(rows) * words, F(0));
    return {scratch, words, 1};
  }
  // Returns the GemmElements of scratch memory that GatherRows needs.
  int64_t RowsScratch(const Heads& h, int64_t rows) const { return ReadsRows(h) ? 0 : Extent(rows) * Words(h.columns); }

  // Copies the first `rows` rows to a matrix whose rows are summed over.
  Matrix<const F> GatherSummed(const Heads& h, const S* from, int64_t rows, F* to) const {
    const int64_t width = Extent(h.columns), words = NumGemmElements<S>(rows);
    for (int64_t i = 0; i < words; ++i) CopySummed(h, from, rows, i, to + i * width);
    std::fill(to + words * width, to + Words(rows) * width, F(0));
    return SummedAt(h, to);
  }
  // Returns the matrix that GatherSummed has copied to `at`.
  Matrix<const F> SummedAt(const Heads& h, const F* at) const { return {at, Extent(h.columns), 1}; }
  int64_t SummedScratch(const Heads& h, int64_t rows) const { return Words(rows) * Extent(h.columns); }

  // Copies the first `count` rows of the head `from` to the transposed matrix [columns, rows] that TransposedAt
  // returns.
  void GatherTransposed(const Heads& h, const S* from, int64_t count, F* scratch) const {
    if constexpr (!kIsBf16<S>) return;
    if (!HasTiles()) {
      GatherSummed(h, from, count, scratch);
      return;
    }
    const int64_t words = Words(count), row = AvoidSets(words);
    const Matrix<const F> pairs = GatherSummed(h, from, count, scratch + Extent(h.columns) * row);
    for (int64_t i = 0; i < words; i += kTile)
      GetAttentionSimd<S>().pack_tile(pairs.data + i * pairs.row, pairs.row, kTile, h.columns, scratch + i, row);
  }
  // `rows`: the rows themselves.
  Matrix<const F> TransposedAt(const Heads& h, const Matrix<const F>& rows, int64_t count, const F* scratch) const {
    if constexpr (!kIsBf16<S>) return {rows.data, rows.column, rows.row};
    if (HasTiles()) return {scratch, AvoidSets(Words(count)), 1};
    return {scratch, 1, Extent(h.columns)};
  }
  int64_t TransposedScratch(const Heads& h, int64_t rows) const {
    if (!kIsBf16<S>) return 0;
    return SummedScratch(h, rows) + (HasTiles() ? Extent(h.columns) * AvoidSets(Words(rows)) : 0);
  }

  // Transposes x [rows, columns] to rows `width` apart, a multiple of 16; elements after the first `rows` are zeros.
  static void Transpose(const Matrix<const F>& x, int64_t rows, int64_t columns, F* to, int64_t width) {
    for (int64_t i = 0; i < width; i += kTile)
      GetAttentionSimd<S>().pack_tile(x.data + i * x.row, x.row, std::min(kTile, rows - i), columns, to + i, width);
  }

  // Transposes keys [rows, columns] to panels of kPanel rows; the last one has the remaining rows, padded with zeros.
  void PackPanels(const Matrix<const F>& x, int64_t rows, int64_t columns, F* to) const {
    const int64_t words = Words(columns), padded = Scores(rows);
    for (int64_t first = 0; first < padded; first += kPanel) {
      const int64_t width = std::min(kPanel, padded - first);
      Transpose({x.data + first * x.row, x.row, 1}, rows - first, words, to + first * words, width);
    }
  }
  int64_t PanelsScratch(const Heads& h) const { return Scores(h.rows) * Words(h.columns); }

  // Computes s = a·panelsᵀ for a range of the keys of h, which begins with a panel.
  void MultiplyPanels(const Matrix<const F>& a, const Heads& h, const F* panels, KeyRange keys,
                      const ScoreRows& s) const {
    const int64_t words = Words(h.columns), padded = Scores(h.rows);
    for (int64_t first = keys.begin; first < keys.end; first += kPanel) {
      const int64_t width = std::min(kPanel, padded - first);
      Multiply(a, {panels + first * words, width, 1}, {s.data + first - keys.begin, s.ld, 1}, s.rows, width, h.columns);
    }
  }

 private:
  bool HasTiles() const { return unit_ != 1; }

  static void CopyRow(const Heads& h, const S* x, int64_t words, F* to) {
    std::fill(to + h.columns * sizeof(S) / sizeof(F), to + words, F(0));
    S* y = reinterpret_cast<S*>(to);
    if (h.column == 1) {
      std::copy_n(x, h.columns, y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j) y[j] = x[j * h.column];
    }
  }

  // Copies row i of `to`: row i of the head, or pairs of the rows 2i and 2i + 1 of the first `rows`.
  static void CopySummed(const Heads& h, const S* from, int64_t rows, int64_t i, F* to) {
    if constexpr (!kIsBf16<S>) {
      CopyRow(h, from + i * h.row, h.columns, to);
    } else {
      const S *first = from + 2 * i * h.row, *second = 2 * i + 1 < rows ? first + h.row : nullptr;
      if (h.column == 1 && second != nullptr)
        return GetAttentionSimd<S>().pack_column_pairs(first, second, h.columns, to);
      for (int64_t j = 0; j < h.columns; ++j)
        to[j] = first[j * h.column] | (second == nullptr ? 0 : static_cast<F>(second[j * h.column]) << 16);
    }
  }

  int64_t unit_;
};

inline float Narrow(float x, float) { return x; }
inline uint16_t Narrow(float x, uint16_t) { return FloatToBFloat16(x); }

// Writes `rows` rows of x to the head from row `first` on, row i multiplied by by(i).
template <typename S, typename By>
void ScatterRows(const Heads& h, const Matrix<const float>& x, int64_t first, int64_t rows, By by, S* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = x.data + i * x.row;
    S* y = to + (first + i) * h.row;
    if (h.column == 1) {
      GetAttentionSimd<S>().scale(from, h.columns, by(i), y);
    } else {
      for (int64_t j = 0; j < h.columns; ++j) y[j * h.column] = Narrow(from[j] * by(i), S());
    }
  }
}

}  // namespace onnxtrain::cpu
