// Packs blocks with known lifetimes into one range of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onnxtrain {

struct Block {
  size_t bytes = 0;             // a multiple of the alignment
  int32_t first = 0, last = 0;  // the steps in which it is alive, both included
};

struct Packing {
  std::vector<size_t> offsets;  // by block
  size_t total = 0;
};

// The most bytes alive in one step: no packing can be smaller.
size_t MostAlive(const std::vector<Block>& blocks);

// Blocks that are alive in a common step do not overlap. Several greedy orders and fits; where the best stays above the
// lower bound by more than 1 %, a fixed number of random changes to it (a function of the number of blocks alone).
Packing Pack(const std::vector<Block>& blocks);

}  // namespace onnxtrain
