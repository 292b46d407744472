// Chooses values that a file holds between two uses, so that the rest of a program's memory is small. Knows no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "backends/arena_packing.h"

namespace onnxtrain {

// A block that leaves memory between two of its uses. Its bytes are in memory in the steps [first, store] and
// [load, last] of its live range.
struct OffloadedBlock {
  int32_t block = 0;  // index
  int32_t store = 0, load = 0;
};

struct OffloadOptions {
  // Values are offloaded if, and as far as, memory would take more bytes.
  size_t memory_limit = std::numeric_limits<size_t>::max();
  // Smaller ones save less than the pages at their ends and a call of the system.
  size_t least_bytes = size_t{64} << 10;
};

// `uses`: the steps that touch each block, ascending. Chooses the blocks that are not used for the longest time
// (Belady's rule) until PeakLiveBytes of the others and PeakResidentBytes of the chosen ones are within the limit.
// Returns the choice that needs the least if none is.
std::vector<OffloadedBlock> ChooseOffloaded(const std::vector<Block>& blocks,
                                            const std::vector<std::vector<int32_t>>& uses,
                                            const OffloadOptions& options);

// Returns the greatest sum of bytes of offloaded blocks in memory in one step.
size_t PeakResidentBytes(const std::vector<Block>& blocks, const std::vector<OffloadedBlock>& offloaded);

}  // namespace onnxtrain
