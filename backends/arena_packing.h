// Packs blocks with known live ranges into one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onnxtrain {

struct Block {
  size_t bytes = 0;             // a multiple of the alignment
  int32_t first = 0, last = 0;  // live range in steps, both included
};

struct Packing {
  std::vector<size_t> offsets;  // by block
  size_t total = 0;
};

// Returns the largest sum of live bytes in one step: no packing can be smaller.
size_t PeakLiveBytes(const std::vector<Block>& blocks);

// Places blocks so that blocks with a common live step do not overlap. Tries several greedy orders and fits. If the
// best is more than 0.5 % above the lower bound, improves it by random moves; more blocks get fewer moves. Several
// thousand blocks are tried in the orders by size and by time first, more than 12,000 blocks in no others.
Packing PackBlocks(const std::vector<Block>& blocks);

}  // namespace onnxtrain
