// Where a kernel finds the element of a broadcast operand.
#pragma once

#include <limits>
#include <string>

#include "frontend/graph/type.h"

namespace onnxtrain::aten {

// The iteration space of a kernel: rows × columns elements in the order of memory.
struct KernelSpace {
  int64_t rows = 1, columns = 1;

  int64_t elements() const { return rows * columns; }
};

struct OperandIndex {
  static constexpr int64_t kAnyRun = std::numeric_limits<int64_t>::max();

  std::string offset;   // of the element at column c of row r: an expression of C++
  bool of_row = false;  // depends on r alone
  bool same = false;    // adjacent elements are one and the same; else they are adjacent
  int64_t run = 1;      // how many elements, from a multiple of that number on, are so
};

// `operand` broadcasts to `shape`, which has the elements of the space.
OperandIndex MakeOperandIndex(const Shape& operand, const Shape& shape, const KernelSpace& space);

}  // namespace onnxtrain::aten
