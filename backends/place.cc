#include "backends/place.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace onnxtrain {
namespace {

enum class Fit : uint8_t { kLowest, kTightest };

bool Meet(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

// The offset for `block` among those placed already, which are listed by offset.
size_t FindGap(const std::vector<Block>& blocks, const std::vector<size_t>& offsets, const std::vector<int32_t>& placed,
               const Block& block, Fit fit) {
  size_t end = 0;  // of what is below
  size_t best = std::numeric_limits<size_t>::max(), least_waste = best;
  for (int32_t p : placed) {
    if (!Meet(blocks[p], block)) continue;
    if (offsets[p] >= end + block.bytes) {
      if (fit == Fit::kLowest) return end;
      if (const size_t waste = offsets[p] - end - block.bytes; waste < least_waste) {
        least_waste = waste;
        best = end;
      }
    }
    end = std::max(end, offsets[p] + blocks[p].bytes);
  }
  return best == std::numeric_limits<size_t>::max() ? end : best;
}

Packing PlaceInOrder(const std::vector<Block>& blocks, const std::vector<int32_t>& order, Fit fit) {
  Packing packing{.offsets = std::vector<size_t>(blocks.size(), 0)};
  std::vector<int32_t> placed;  // by offset
  for (int32_t b : order) {
    if (blocks[b].bytes == 0) continue;
    const size_t offset = FindGap(blocks, packing.offsets, placed, blocks[b], fit);
    packing.offsets[b] = offset;
    packing.total = std::max(packing.total, offset + blocks[b].bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t o, int32_t p) { return o < packing.offsets[p]; }),
                  b);
  }
  return packing;
}

using Key = double (*)(const Block&);
constexpr Key kKeys[] = {
    [](const Block& b) { return -static_cast<double>(b.bytes); },
    [](const Block& b) { return -static_cast<double>(b.bytes) * (b.last - b.first + 1); },
    [](const Block& b) { return static_cast<double>(b.first); },
    [](const Block& b) { return static_cast<double>(b.first - b.last); },
};

std::vector<int32_t> SortedBy(const std::vector<Block>& blocks, Key key) {
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

bool IsClose(size_t total, size_t bound) { return total <= bound + bound / 200; }

// Blocks below a two-thousandth of the bound find room wherever the others leave it: the search goes without them, and so tries more.
constexpr size_t kSmall = 2000;

// Moves a block, mostly one that sticks out above the bound, to a random earlier place in the order and keeps what is not worse.
void Improve(const std::vector<Block>& blocks, size_t bound, Start start, Packing* best) {
  auto& order = start.order;
  const auto end = std::stable_partition(order.begin(), order.end(), [&](int32_t b) { return blocks[b].bytes * kSmall >= bound; });
  const std::vector<int32_t> small(end, order.end());
  order.erase(end, order.end());
  const size_t n = order.size();
  const size_t rounds = n == 0 ? 0 : std::min<size_t>(2000, 80'000'000 / (n * n));
  std::mt19937 random(1);
  Packing now = PlaceInOrder(blocks, order, start.fit);
  for (size_t i = 0; i < rounds && !IsClose(now.total, bound); ++i) {
    std::vector<size_t> high;  // places in the order
    for (size_t at = 0; at < n; ++at) {
      if (now.offsets[order[at]] + blocks[order[at]].bytes > bound) high.push_back(at);
    }
    auto changed = order;
    const bool any = high.empty() || random() % 4 == 0;
    const size_t from = any ? random() % n : high[random() % high.size()], to = random() % (from + 1);
    std::rotate(changed.begin() + to, changed.begin() + from, changed.begin() + from + 1);
    Packing packing = PlaceInOrder(blocks, changed, start.fit);
    if (packing.total > now.total) continue;
    now = std::move(packing);
    order = std::move(changed);
  }
  order.insert(order.end(), small.begin(), small.end());
  Packing packing = PlaceInOrder(blocks, order, start.fit);
  if (packing.total < best->total) *best = std::move(packing);
}

}  // namespace

size_t MostAlive(const std::vector<Block>& blocks) {
  int32_t steps = 0;
  for (const Block& b : blocks) steps = std::max(steps, b.last + 1);
  std::vector<int64_t> change(steps + 1, 0);
  for (const Block& b : blocks) {
    change[b.first] += static_cast<int64_t>(b.bytes);
    change[b.last + 1] -= static_cast<int64_t>(b.bytes);
  }
  int64_t now = 0, most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return static_cast<size_t>(most);
}

Packing Pack(const std::vector<Block>& blocks) {
  const size_t bound = MostAlive(blocks);
  Packing best{.total = std::numeric_limits<size_t>::max()};
  std::vector<Start> starts;
  for (Key key : kKeys) {
    for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
      auto order = SortedBy(blocks, key);
      Packing packing = PlaceInOrder(blocks, order, fit);
      starts.push_back({packing.total, std::move(order), fit});
      if (packing.total < best.total) best = std::move(packing);
      if (best.total == bound) return best;
    }
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) { return a.total < b.total; });
  for (Start& start : starts) {
    if (!IsClose(best.total, bound)) Improve(blocks, bound, std::move(start), &best);
  }
  return best;
}

}  // namespace onnxtrain
