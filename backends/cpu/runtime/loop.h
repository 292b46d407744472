// Loops over broadcast or strided operands, with as few and as long inner loops as the shapes allow.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain::cpu {

inline constexpr int kMaxOperands = 16;
using OperandOffsets = std::array<int64_t, kMaxOperands>;

// Extents with the strides (in elements) of every operand. The iteration order is row-major over the extents.
struct Loop {
  int operands = 0;
  std::vector<int64_t> extents;         // at least one; the last is the inner loop
  std::vector<OperandOffsets> strides;  // by axis

  int64_t inner() const { return extents.back(); }
  int64_t InnerStride(int operand) const { return strides.back()[operand]; }
  int64_t rows() const;  // how many inner loops
  int64_t size() const { return rows() * inner(); }
};

// Merges neighbouring axes where every operand allows it and drops axes of extent 1.
Loop MakeLoop(const Shape& extents, std::span<const Shape> strides);

// Strides of a dense tensor of shape `from`, broadcast to `to`: 0 along axes that are repeated.
Shape BroadcastStrides(const Shape& from, const Shape& to);

// Iterates over `outputs` (dense) and its broadcast inputs: operand 0 is the output, then the inputs.
Loop BroadcastLoop(const Shape& output, std::span<const Shape> inputs);

// Calls f(offsets, count) for the parts of inner loops that make up the elements [begin, end). `offsets` are in
// elements.
template <typename F>
void ForRows(const Loop& loop, int64_t begin, int64_t end, F&& f) {
  if (begin >= end) return;
  const int axes = static_cast<int>(loop.extents.size());
  const int64_t inner = loop.inner();
  std::array<int64_t, 64> index;  // a shape of 2^40 elements has at most 40 axes that are not 1
  OperandOffsets row{};
  int64_t r = begin / inner, column = begin % inner;
  for (int a = axes - 2; a >= 0; --a) {
    index[a] = r % loop.extents[a];
    r /= loop.extents[a];
    for (int k = 0; k < loop.operands; ++k) row[k] += index[a] * loop.strides[a][k];
  }
  while (true) {
    const int64_t count = inner - column < end - begin ? inner - column : end - begin;
    OperandOffsets offsets = row;
    if (column != 0) {
      for (int k = 0; k < loop.operands; ++k) offsets[k] += column * loop.strides[axes - 1][k];
    }
    f(offsets, count);
    begin += count;
    if (begin >= end) return;
    column = 0;
    for (int a = axes - 2;; --a) {
      for (int k = 0; k < loop.operands; ++k) row[k] += loop.strides[a][k];
      if (++index[a] < loop.extents[a]) break;
      for (int k = 0; k < loop.operands; ++k) row[k] -= loop.extents[a] * loop.strides[a][k];
      index[a] = 0;
    }
  }
}

}  // namespace onnxtrain::cpu
