// Copies between strided tensors, for Transpose, Expand, Slice, Concat and others.
#pragma once

#include <cstdint>

#include "backends/cpu/runtime/loop.h"

namespace onnxtrain::cpu {

// One side of a copy: an offset and strides in elements. Strides of the source may be 0 or negative.
struct Strided {
  int64_t offset = 0;
  Shape strides;
};

class StridedCopy {
 public:
  StridedCopy() = default;
  // Axes may be visited in any order: destinations must be distinct.
  StridedCopy(const Shape& extents, const Strided& to, const Strided& from, size_t element_size);

  // The tensors' first elements.
  void Run(void* to, const void* from) const;

 private:
  template <typename T>
  void Rows(T* to, const T* from) const;
  template <typename T>
  void Tiles(T* to, const T* from) const;

  size_t element_size_ = 1;
  int64_t to_offset_ = 0, from_offset_ = 0;
  Loop loop_;  // operand 0: destination, 1: source
  // A transposition: neighbours of the destination (stride 1 over `across_`) are far apart in the source, whose own
  // neighbours lie along another axis (`along_`). Then loop_ has the remaining axes only.
  bool tiled_ = false;
  int64_t across_ = 0, along_ = 0;       // extents
  int64_t to_step_ = 0, from_step_ = 0;  // destination stride along, source stride across
};

// Fills n elements with a pattern of element_size bytes.
void Fill(void* to, int64_t n, const void* pattern, size_t element_size);

}  // namespace onnxtrain::cpu
