#include "frontend/data/load/sample_order.h"

#include <algorithm>
#include <array>
#include <map>
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
    const uint64_t biased = -bound % bound;  // 2^64 mod bound: number of low products to reject
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
  constexpr int64_t kMaxBatches = 50;  // batches per chunk
  const auto n = static_cast<int64_t>(order->size());
  const int64_t chunk = std::clamp<int64_t>(n / (4 * batch_size), 1, kMaxBatches) * batch_size;
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

int64_t RoundUpLength(int64_t length, int64_t longest) {
  int64_t step = 8;
  while (step * 16 < length) step *= 2;
  return std::min((std::max<int64_t>(length, 1) + step - 1) / step * step, longest);
}

int64_t TokenBudget::MicroSamples(int64_t length) const {
  const int64_t fit = std::max<int64_t>(1, tokens / std::max<int64_t>(1, length));
  return max_samples > 0 ? std::min(fit, max_samples) : fit;
}

TokenBatches::TokenBatches(const Dataset& data, const TokenBudget& budget, int64_t longest, bool drop_last)
    : data_(data), budget_(budget), longest_(longest), drop_last_(drop_last) {
  std::map<int64_t, int64_t> counts;  // samples by padded length
  for (int64_t i = 0; i < data.size(); ++i) ++counts[RoundUpLength(data.Length(i), longest)];
  int64_t rest = 0;
  for (const auto& [length, count] : counts) {
    lengths_.push_back(length);
    const int64_t samples = budget.Samples(length), whole = (rest + count) / samples;
    batches_ += whole;
    rest = (rest + count) % samples;
    const int64_t most = whole > 0 ? samples : rest;
    max_samples_ = std::max(max_samples_, most);
    max_tokens_ = std::max(max_tokens_, most * length);
  }
  if (rest > 0 && !drop_last) ++batches_;
}

size_t TokenBatches::BucketOf(int64_t sample) const {
  const int64_t length = RoundUpLength(data_.Length(sample), longest_);
  return std::ranges::lower_bound(lengths_, length) - lengths_.begin();
}

namespace {

// Shuffles the batches after the first, which has the longest samples.
std::vector<TokenBatches::Cut> ShuffleCuts(const std::vector<TokenBatches::Cut>& cuts,
                                           const std::vector<int64_t>& order) {
  std::vector<TokenBatches::Cut> shuffled;
  for (const int64_t i : order) shuffled.push_back(cuts[i]);
  const auto longest = std::ranges::max_element(shuffled, {}, &TokenBatches::Cut::length);
  if (longest != shuffled.end()) std::iter_swap(shuffled.begin(), longest);
  return shuffled;
}

}  // namespace

std::vector<TokenBatches::Cut> TokenBatches::CutEpoch(uint64_t seed, int64_t epoch, bool shuffle,
                                                      std::vector<int64_t>* order) const {
  std::vector<std::vector<int64_t>> buckets(lengths_.size());
  for (const int64_t sample : *order) buckets[BucketOf(sample)].push_back(sample);
  std::vector<int64_t> sorted, rest;
  std::vector<Cut> cuts;
  sorted.reserve(order->size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    rest.insert(rest.end(), buckets[b].begin(), buckets[b].end());
    const int64_t samples = budget_.Samples(lengths_[b]), whole = std::ssize(rest) / samples * samples;
    for (int64_t k = 0; k < whole; k += samples) {
      const int64_t begin = std::ssize(sorted) + k;
      cuts.push_back({begin, begin + samples, lengths_[b]});
    }
    sorted.insert(sorted.end(), rest.begin(), rest.begin() + whole);
    rest.erase(rest.begin(), rest.begin() + whole);
  }
  if (shuffle) cuts = ShuffleCuts(cuts, BatchOrder(std::ssize(cuts), seed, epoch));
  if (!rest.empty() && !drop_last_) cuts.push_back({std::ssize(sorted), std::ssize(*order), lengths_.back()});
  sorted.insert(sorted.end(), rest.begin(), rest.end());
  *order = std::move(sorted);
  return cuts;
}

}  // namespace onnxtrain
