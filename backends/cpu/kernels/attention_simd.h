// The vector functions of attention, compiled per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backends/cpu/kernels/visible_keys.h"

namespace onnxtrain::cpu {

// The elements that products multiply, of four bytes: floats, or pairs of bf16 for a dot product instruction.
template <typename S>
using GemmElement = std::conditional_t<std::is_same_v<S, float>, float, uint32_t>;

template <typename F>
struct Matrix {
  F* data;
  int64_t row, column;  // strides
};

// Scores of a block of queries, in rows `ld` floats apart. Functions write the first `padded` elements of a row, a
// multiple of 16: those of keys that the query does not see become zeros.
struct ScoreRows {
  float* data;
  int64_t ld, rows, keys, padded;
  const KeyRange* seen = nullptr;  // by row, counted from the first key of all; null: all keys, with the mask
  int64_t first_key = 0;

  // Returns true if row i sees no keys outside the block.
  bool IsWhole(int64_t i, bool has_all_keys) const {
    return seen == nullptr ? has_all_keys : seen[i].begin >= first_key && seen[i].end <= first_key + keys;
  }
  // Returns the keys of the block that row i sees, counted from the first one of the block.
  KeyRange Seen(int64_t i) const {
    if (seen == nullptr) return {0, keys, true};
    const int64_t begin = std::clamp<int64_t>(seen[i].begin - first_key, 0, keys);
    return {begin, std::clamp(seen[i].end - first_key, begin, keys), seen[i].masked};
  }
};

// The mask of a block of queries; null: none. `column` is 0 or 1.
struct ScoreMask {
  const float* data;
  int64_t row, column;
};

// By row: the maximum of the scores, 0 if all keys are hidden, and 1 over the sum of the exponentials of scores −
// maximum.
template <typename Float>
struct SoftmaxRows {
  Float *max, *inverse;
};

// Factors per score, in rows like those of the scores; null if there are none.
struct ScoreFactors {
  const float* kept = nullptr;   // the dropout's factors of probabilities and their gradients
  const float* slope = nullptr;  // the softcap's factors of gradients of scores
};

// A block of scores in the backward pass, and the elements S that products read. Results of bf16 are pairs of adjacent
// rows; `row` is the distance of rows, or of rows of pairs.
template <typename S>
struct ScoreGradients {
  ScoreRows scores;  // q·k
  const float* dp;   // dy·v, in rows like those of the scores
  float scale;
  ScoreMask mask;
  SoftmaxRows<const float> softmax;
  const float* dot;   // by row: Σ dy·y
  bool has_all_keys;  // the block, if rows do not name the keys that they see
  ScoreFactors factors;
  GemmElement<S>*p, *ds;  // kept probabilities, gradients of the scores by `scale`
  int64_t row;
  S* across = nullptr;  // of bf16: ds in rows of `row` elements
};

// The vector functions for operands stored as S.
template <typename S>
struct AttentionSimd {
  using F = GemmElement<S>;
  // Computes c[m,n] = a·b, or adds a·b to c. The rows of b [k,n] and c are contiguous.
  void (*multiply)(const Matrix<const F>& a, const Matrix<const F>& b, const Matrix<float>& c, int64_t m, int64_t n,
                   int64_t k, bool add);
  // Computes c[m,n] = a·bᵀ. The rows of a, b [n,k] and c are contiguous.
  void (*multiply_transposed)(const Matrix<const F>& a, const Matrix<const F>& b, const Matrix<float>& c, int64_t m,
                              int64_t n, int64_t k);
  // Transposes up to 16 rows of x to to[columns, 16], padded with zeros; the rows of `to` are `width` apart.
  void (*pack_tile)(const F* x, int64_t row, int64_t rows, int64_t columns, F* to, int64_t width);
  // Returns Σ x·y.
  float (*dot)(const S* x, int64_t x_step, const S* y, int64_t y_step, int64_t n);
  // Returns the maximum over rows of Σ x²; NaN if x has one.
  float (*largest_square)(const S* x, int64_t row, int64_t column, int64_t rows, int64_t columns);
  // Replaces scores by e^(s·scale + mask − the row's maximum), as elements S from the start of each row or as floats.
  void (*softmax)(const ScoreRows& s, float scale, const ScoreMask& mask, const SoftmaxRows<float>& rows);
  void (*softmax_floats)(const ScoreRows& s, float scale, const ScoreMask& mask, const SoftmaxRows<float>& rows);
  // Computes s = cap·tanh(s·scale/cap). `slopes`, if not null, is 1 − tanh², in rows like those of s.
  void (*softcap)(const ScoreRows& s, float scale, float cap, float* slopes);
  void (*score_grads)(const ScoreGradients<S>& x);
  void (*scale)(const float* x, int64_t n, float by, S* to);
  // Interleaves two rows of bf16 as pairs.
  void (*pack_column_pairs)(const uint16_t* first, const uint16_t* second, int64_t n, uint32_t* to);
};

// Returns the functions of the best instruction set.
template <typename S>
const AttentionSimd<S>& GetAttentionSimd();
template <>
const AttentionSimd<float>& GetAttentionSimd();
template <>
const AttentionSimd<uint16_t>& GetAttentionSimd();

}  // namespace onnxtrain::cpu
