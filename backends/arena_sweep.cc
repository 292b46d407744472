#include "backends/arena_sweep.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace onnxtrain {
namespace {

// The gaps between live blocks.
class Gaps {
 public:
  size_t Take(size_t bytes, bool tightest) {
    const auto gap = tightest ? FindTightest(bytes) : FindLowest(bytes);
    const auto [offset, size] = *gap;
    Remove(gap);
    if (size > bytes) Add(offset + bytes, size - bytes);
    return offset;
  }

  void Return(size_t offset, size_t bytes) {
    auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = Remove(next);
    }
    if (next != gaps_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        Remove(before);
      }
    }
    Add(offset, bytes);
  }

 private:
  using Gap = std::map<size_t, size_t>::iterator;

  // Scans the gaps from below. The last one has no end.
  Gap FindLowest(size_t bytes) {
    constexpr int kMaxScanned = 256;
    auto gap = gaps_.begin();
    for (int i = 0; i < kMaxScanned && gap->second < bytes; ++i) ++gap;
    return gap->second < bytes ? FindTightest(bytes) : gap;
  }

  Gap FindTightest(size_t bytes) { return gaps_.find(by_size_.lower_bound({bytes, 0})->second); }

  void Add(size_t offset, size_t bytes) {
    gaps_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }

  Gap Remove(Gap gap) {
    by_size_.erase({gap->second, gap->first});
    return gaps_.erase(gap);
  }

  static constexpr size_t kEndless = std::numeric_limits<size_t>::max() / 2;
  std::map<size_t, size_t> gaps_ = {{0, kEndless}};  // by offset
  std::set<std::pair<size_t, size_t>> by_size_ = {{kEndless, 0}};
};

Packing Sweep(const std::vector<Block>& blocks, bool tightest) {
  std::vector<int32_t> starts(blocks.size());
  std::iota(starts.begin(), starts.end(), 0);
  std::vector<int32_t> ends = starts;
  // Of blocks that start together, the one that lives longest comes first.
  std::ranges::stable_sort(starts, {}, [&](int32_t b) { return std::pair(blocks[b].first, -blocks[b].last); });
  std::ranges::stable_sort(ends, {}, [&](int32_t b) { return blocks[b].last; });
  Packing packing{.offsets = std::vector<size_t>(blocks.size(), 0)};
  Gaps gaps;
  auto ended = ends.begin();
  for (int32_t b : starts) {
    for (; blocks[*ended].last < blocks[b].first; ++ended) {
      if (blocks[*ended].bytes > 0) gaps.Return(packing.offsets[*ended], blocks[*ended].bytes);
    }
    if (blocks[b].bytes == 0) continue;
    packing.offsets[b] = gaps.Take(blocks[b].bytes, tightest);
    packing.total = std::max(packing.total, packing.offsets[b] + blocks[b].bytes);
  }
  return packing;
}

}  // namespace

Packing PackBySweeps(const std::vector<Block>& blocks) {
  std::vector<Block> reversed = blocks;
  for (Block& block : reversed) block = {.bytes = block.bytes, .first = -block.last, .last = -block.first};
  Packing best{.total = std::numeric_limits<size_t>::max()};
  for (const std::vector<Block>* direction : {&blocks, &std::as_const(reversed)}) {
    for (bool tightest : {false, true}) {
      if (Packing packing = Sweep(*direction, tightest); packing.total < best.total) best = std::move(packing);
    }
  }
  return best;
}

}  // namespace onnxtrain
