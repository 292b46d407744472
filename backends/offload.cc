#include "backends/offload.h"

#include <algorithm>
#include <functional>

namespace onnxtrain {
namespace {

// Live bytes by step.
class Live {
 public:
  explicit Live(const std::vector<Block>& blocks) {
    for (const Block& block : blocks) bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(block.last) + 1));
  }
  void Add(int32_t first, int32_t last, int64_t bytes) {
    for (int32_t step = first; step <= last; ++step) bytes_[step] += bytes;
  }
  void AddResident(const Block& block, const OffloadedBlock& offloaded) {
    Add(block.first, offloaded.store, static_cast<int64_t>(block.bytes));
    Add(offloaded.load, block.last, static_cast<int64_t>(block.bytes));
  }
  int32_t peak_step() const { return static_cast<int32_t>(std::ranges::max_element(bytes_) - bytes_.begin()); }
  size_t peak() const { return bytes_.empty() ? 0 : static_cast<size_t>(std::ranges::max(bytes_)); }

 private:
  std::vector<int64_t> bytes_;
};

// Returns blocks with the longest time between two of their uses, the longest first.
std::vector<OffloadedBlock> ListCandidates(const std::vector<Block>& blocks,
                                           const std::vector<std::vector<int32_t>>& uses, size_t least_bytes) {
  std::vector<OffloadedBlock> candidates;
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].bytes < least_bytes) continue;
    OffloadedBlock longest{.block = static_cast<int32_t>(b)};
    for (size_t u = 1; u < uses[b].size(); ++u) {
      if (uses[b][u] - uses[b][u - 1] > longest.load - longest.store)
        longest.store = uses[b][u - 1], longest.load = uses[b][u];
    }
    if (longest.load - longest.store > 1) candidates.push_back(longest);
  }
  std::ranges::stable_sort(candidates, std::greater(), [](const OffloadedBlock& o) { return o.load - o.store; });
  return candidates;
}

}  // namespace

std::vector<OffloadedBlock> ChooseOffloaded(const std::vector<Block>& blocks,
                                            const std::vector<std::vector<int32_t>>& uses,
                                            const OffloadOptions& options) {
  std::vector<OffloadedBlock> candidates = ListCandidates(blocks, uses, options.least_bytes), chosen;
  Live arena(blocks), resident(blocks);
  for (const Block& block : blocks) arena.Add(block.first, block.last, static_cast<int64_t>(block.bytes));
  size_t least = arena.peak(), best = 0;  // best: number of the chosen blocks that need the least
  while (arena.peak() + resident.peak() > options.memory_limit) {
    const int32_t peak = arena.peak_step();
    const auto next =
        std::ranges::find_if(candidates, [&](const OffloadedBlock& o) { return o.store < peak && peak < o.load; });
    if (next == candidates.end()) break;
    const Block& block = blocks[next->block];
    arena.Add(block.first, block.last, -static_cast<int64_t>(block.bytes));
    resident.AddResident(block, *next);
    chosen.push_back(*next);
    candidates.erase(next);
    if (const size_t needed = arena.peak() + resident.peak(); needed < least) least = needed, best = chosen.size();
  }
  chosen.resize(best);
  return chosen;
}

size_t PeakResidentBytes(const std::vector<Block>& blocks, const std::vector<OffloadedBlock>& offloaded) {
  Live resident(blocks);
  for (const OffloadedBlock& o : offloaded) resident.AddResident(blocks[o.block], o);
  return resident.peak();
}

}  // namespace onnxtrain
