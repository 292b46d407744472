// Packing of many blocks in the order of their live ranges.
#pragma once

#include "backends/arena_packing.h"

namespace onnxtrain {

// Places blocks like an allocator that sees the program run, or run backwards: each in the lowest or the tightest gap.
// Keeps the best of these four. Takes O(n log n).
Packing PackBySweeps(const std::vector<Block>& blocks);

}  // namespace onnxtrain
