#include "backends/arena_packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>

namespace onnxtrain {
namespace {

// Free ranges between live blocks.
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
  // Blocks that start together are in the order of their ends, the last one first.
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

// Places blocks like an allocator that sees the program run, or run backwards: each in the lowest or the tightest gap.
// Keeps the best of these four. Takes O(n log n).
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

enum class Fit : uint8_t { kLowest, kTightest };

struct Placed {
  size_t offset, end;
  int32_t first, last;  // live range
  int32_t block;
};

// Placed blocks, with those of short spans of steps at hand. Blocks are short-lived, mostly, and meet a few of all
// others.
class PlacedBlocks {
 public:
  explicit PlacedBlocks(int32_t steps) : width_(std::max(kLeastWidth, 2 * (steps / kSpans + 1))) {
    spans_.resize(2 * (steps / width_ + 1) + 1);
  }

  void clear() {
    all_.clear();
    sorted_ = 0;
    for (auto& span : spans_) span.clear();
  }

  void Add(const Placed& placed) {
    all_.push_back(placed);
    for (int32_t i = std::max(0, placed.first / (width_ / 2) - 1); i <= placed.last / (width_ / 2); ++i) {
      std::vector<Placed>& span = spans_[i];
      span.insert(std::ranges::upper_bound(span, placed.offset, {}, &Placed::offset), placed);
    }
  }

  // Returns blocks by offset, among them all that are live in these steps. Valid until the next call.
  std::span<const Placed> Near(int32_t first, int32_t last) {
    const int32_t i = first / (width_ / 2);
    if (last < (i + 2) * (width_ / 2)) return spans_[i];
    const auto middle = all_.begin() + static_cast<ptrdiff_t>(sorted_);
    std::ranges::stable_sort(middle, all_.end(), {}, &Placed::offset);
    std::ranges::inplace_merge(all_, middle, {}, &Placed::offset);
    sorted_ = all_.size();
    return all_;
  }

  const std::vector<Placed>& all() const { return all_; }

 private:
  static constexpr int32_t kSpans = 64, kLeastWidth = 8;

  int32_t width_;            // steps of a span
  std::vector<Placed> all_;  // the first `sorted_` ones by offset
  size_t sorted_ = 0;
  std::vector<std::vector<Placed>> spans_;  // blocks by offset; span i begins at step i · width / 2
};

int32_t CountSteps(const std::vector<Block>& blocks) {
  int32_t steps = 0;
  for (const Block& b : blocks) steps = std::max(steps, b.last + 1);
  return steps;
}

// A packing under construction.
class Placement {
 public:
  Placement(const std::vector<Block>& blocks, Fit fit)
      : blocks_(&blocks), fit_(fit), placed_(CountSteps(blocks)), offsets_(blocks.size(), 0) {}

  size_t total() const { return total_; }
  size_t offset(int32_t block) const { return offsets_[block]; }
  Packing Take() && { return {std::move(offsets_), total_}; }

  void Add(int32_t b) {
    const Block& block = (*blocks_)[b];
    if (block.bytes == 0) return;
    const size_t offset = FindGap(block);
    Place({offset, offset + block.bytes, block.first, block.last, b});
  }

  // Replaces this placement by the part of `other` that consists of the blocks with place[b] < end.
  void KeepBefore(const Placement& other, const std::vector<size_t>& place, size_t end) {
    placed_.clear();
    total_ = 0;
    for (const Placed& p : other.placed_.all()) {
      if (place[p.block] < end) Place(p);
    }
  }

 private:
  void Place(const Placed& placed) {
    offsets_[placed.block] = placed.offset;
    total_ = std::max(total_, placed.end);
    placed_.Add(placed);
  }

  // Returns an offset that is free for the whole live range of `block`.
  size_t FindGap(const Block& block) {
    const std::span<const Placed> near = placed_.Near(block.first, block.last);
    overlapping_.resize(near.size() + 1);
    size_t count = 0;
    for (const Placed& p : near) {  // branch-free, because overlaps are hard to predict
      overlapping_[count] = {p.offset, p.end};
      count += static_cast<size_t>(p.first <= block.last) & static_cast<size_t>(p.last >= block.first);
    }
    size_t end = 0;  // end of the blocks below
    size_t best = std::numeric_limits<size_t>::max(), least_waste = best;
    for (const auto& [next, next_end] : std::span(overlapping_).first(count)) {
      if (next >= end + block.bytes) {
        if (fit_ == Fit::kLowest) return end;
        if (const size_t waste = next - end - block.bytes; waste < least_waste) {
          least_waste = waste;
          best = end;
        }
      }
      end = std::max(end, next_end);
    }
    return best == std::numeric_limits<size_t>::max() ? end : best;
  }

  const std::vector<Block>* blocks_;
  Fit fit_;
  PlacedBlocks placed_;
  std::vector<std::pair<size_t, size_t>> overlapping_;  // offset and end; buffer of FindGap
  std::vector<size_t> offsets_;
  size_t total_ = 0;
};

Placement PlaceInOrder(const std::vector<Block>& blocks, const std::vector<int32_t>& order, Fit fit) {
  Placement placement(blocks, fit);
  for (int32_t b : order) placement.Add(b);
  return placement;
}

using Key = double (*)(const Block&);
constexpr Key kKeys[] = {
    [](const Block& b) { return -static_cast<double>(b.bytes); },
    [](const Block& b) { return -static_cast<double>(b.bytes) * (b.last - b.first + 1); },
    [](const Block& b) { return static_cast<double>(b.first); },
    [](const Block& b) { return static_cast<double>(b.first - b.last); },
};

std::vector<int32_t> SortBlocks(const std::vector<Block>& blocks, Key key) {
  std::vector<int32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(blocks[a]) < key(blocks[b]); });
  return order;
}

struct Start {
  size_t total;
  std::vector<int32_t> order;
  Fit fit;
};

bool IsNearBound(size_t total, size_t bound) { return total <= bound + bound / 200; }

// Numbers of blocks above which sweeps are tried first, and alone: placing n blocks in any other order takes O(n²).
constexpr size_t kManyBlocks = 4000, kTooManyBlocks = 12'000;

// Blocks below a two-thousandth of the bound fit into the gaps of any packing: the search leaves them out and tries
// more.
constexpr size_t kSmall = 2000;

// Moves a block, mostly one that ends above the bound, to a random earlier place in the order, and keeps the order if
// it is not worse. Blocks before that place stay where they are, and a candidate is dropped as soon as it is worse.
void ImproveByLocalSearch(const std::vector<Block>& blocks, size_t bound, Start start, Packing* best) {
  auto& order = start.order;
  const auto end =
      std::stable_partition(order.begin(), order.end(), [&](int32_t b) { return blocks[b].bytes * kSmall >= bound; });
  const std::vector<int32_t> small(end, order.end());
  order.erase(end, order.end());
  const size_t n = order.size();
  const size_t rounds = n == 0 ? 0 : std::min<size_t>(2000, 80'000'000 / (n * n));
  std::mt19937 random(1);
  Placement now = PlaceInOrder(blocks, order, start.fit), candidate = now;
  std::vector<size_t> place(blocks.size()),
      high;  // positions in the order, by block; those of blocks that end above the bound
  for (size_t i = 0; i < rounds && !IsNearBound(now.total(), bound); ++i) {
    high.clear();
    for (size_t at = 0; at < n; ++at) {
      place[order[at]] = at;
      if (now.offset(order[at]) + blocks[order[at]].bytes > bound) high.push_back(at);
    }
    const bool any = high.empty() || random() % 4 == 0;
    const size_t from = any ? random() % n : high[random() % high.size()], to = random() % (from + 1);
    const auto moved = order.begin() + static_cast<ptrdiff_t>(to);
    std::rotate(moved, order.begin() + static_cast<ptrdiff_t>(from), order.begin() + static_cast<ptrdiff_t>(from) + 1);
    candidate.KeepBefore(now, place, to);
    for (size_t at = to; at < n && candidate.total() <= now.total(); ++at) candidate.Add(order[at]);
    if (candidate.total() <= now.total()) {
      std::swap(now, candidate);
    } else {  // undoes the move
      std::rotate(moved, moved + 1, order.begin() + static_cast<ptrdiff_t>(from) + 1);
    }
  }
  order.insert(order.end(), small.begin(), small.end());
  Placement placement = PlaceInOrder(blocks, order, start.fit);
  if (placement.total() < best->total) *best = std::move(placement).Take();
}

}  // namespace

size_t PeakLiveBytes(const std::vector<Block>& blocks) {
  std::vector<int64_t> change(CountSteps(blocks) + 1, 0);
  for (const Block& b : blocks) {
    change[b.first] += static_cast<int64_t>(b.bytes);
    change[b.last + 1] -= static_cast<int64_t>(b.bytes);
  }
  int64_t now = 0, most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return static_cast<size_t>(most);
}

Packing PackBlocks(const std::vector<Block>& blocks) {
  const size_t bound = PeakLiveBytes(blocks);
  Packing best{.total = std::numeric_limits<size_t>::max()};
  if (blocks.size() > kManyBlocks) {
    best = PackBySweeps(blocks);
    if (IsNearBound(best.total, bound) || blocks.size() > kTooManyBlocks) return best;
  }
  std::vector<Start> starts;
  for (Key key : kKeys) {
    for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
      auto order = SortBlocks(blocks, key);
      Placement placement = PlaceInOrder(blocks, order, fit);
      starts.push_back({placement.total(), std::move(order), fit});
      if (placement.total() < best.total) best = std::move(placement).Take();
      if (best.total == bound) return best;
    }
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) { return a.total < b.total; });
  for (Start& start : starts) {
    if (!IsNearBound(best.total, bound)) ImproveByLocalSearch(blocks, bound, std::move(start), &best);
  }
  return best;
}

}  // namespace onnxtrain
