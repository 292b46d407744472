#include "frontend/data/load/epoch_order.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "frontend/base/philox.h"

namespace onnxtrain {
namespace {

class Words {
 public:
  Words(uint64_t seed, uint32_t stream, uint64_t epoch) : key_{LowWord(seed), HighWord(seed) ^ stream}, epoch_(epoch) {}

  uint64_t Next() {
    if (half_ == 0)
      block_ = Philox4x32({LowWord(counter_), HighWord(counter_), LowWord(epoch_), HighWord(epoch_)}, key_);
    const uint64_t word = block_[2 * half_] | uint64_t{block_[2 * half_ + 1]} << 32;
    half_ ^= 1;
    counter_ += half_ == 0;
    return word;
  }

  // Draws uniformly from [0, bound).
  uint64_t DrawBelow(uint64_t bound) {
    const uint64_t biased = -bound % bound;  // 2^64 mod bound: rejects that many low products
    while (true) {
      const auto product = static_cast<unsigned __int128>(Next()) * bound;
      if (static_cast<uint64_t>(product) >= biased) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  static uint32_t LowWord(uint64_t v) { return static_cast<uint32_t>(v); }
  static uint32_t HighWord(uint64_t v) { return static_cast<uint32_t>(v >> 32); }

  std::array<uint32_t, 2> key_;
  uint64_t epoch_, counter_ = 0;
  PhiloxBlock block_{};
  int half_ = 0;
};

constexpr uint32_t kSampleStream = 0x53485546, kBatchStream = 0x4c454e47;

template <typename T>
void Shuffle(Words words, std::vector<T>* items) {
  for (size_t i = items->size(); i-- > 1;) std::swap((*items)[i], (*items)[words.DrawBelow(i + 1)]);
}

}  // namespace

std::vector<int64_t> EpochOrder(int64_t n, uint64_t seed, int64_t epoch, bool shuffle) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  Shuffle(Words(seed, kSampleStream, static_cast<uint64_t>(epoch)), &order);
  return order;
}

std::vector<int64_t> BatchOrder(int64_t n, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> batches(n);
  std::iota(batches.begin(), batches.end(), int64_t{0});
  Shuffle(Words(seed, kBatchStream, static_cast<uint64_t>(epoch)), &batches);
  return batches;
}

void GroupByLength(int64_t batch_size, const std::function<int64_t(int64_t)>& length, uint64_t seed, int64_t epoch,
                   std::vector<int64_t>* order) {
  constexpr int64_t kMostBatches = 50;  // of a chunk
  const auto n = static_cast<int64_t>(order->size());
  const int64_t chunk = std::clamp<int64_t>(n / (4 * batch_size), 1, kMostBatches) * batch_size;
  for (int64_t begin = 0; begin < n; begin += chunk) {
    std::stable_sort(order->begin() + begin, order->begin() + std::min(begin + chunk, n),
                     [&](int64_t a, int64_t b) { return length(a) > length(b); });
  }
  std::vector<int64_t> batches = BatchOrder(n / batch_size, seed, epoch);
  const auto longest =
      std::ranges::max_element(batches, {}, [&](int64_t batch) { return length((*order)[batch * batch_size]); });
  if (longest != batches.end()) std::iter_swap(batches.begin(), longest);
  std::vector<int64_t> grouped;
  grouped.reserve(n);
  for (const int64_t batch : batches)
    grouped.insert(grouped.end(), order->begin() + batch * batch_size, order->begin() + (batch + 1) * batch_size);
  grouped.insert(grouped.end(), order->begin() + static_cast<int64_t>(grouped.size()), order->end());
  *order = std::move(grouped);
}

}  // namespace onnxtrain
