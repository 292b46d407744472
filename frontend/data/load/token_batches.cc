#include "frontend/data/load/token_batches.h"

#include <algorithm>
#include <map>
#include <utility>

#include "frontend/data/load/epoch_order.h"

namespace onnxtrain {

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
    most_samples_ = std::max(most_samples_, most);
    most_tokens_ = std::max(most_tokens_, most * length);
  }
  if (rest > 0 && !drop_last) ++batches_;
}

size_t TokenBatches::BucketOf(int64_t sample) const {
  const int64_t length = RoundUpLength(data_.Length(sample), longest_);
  return std::ranges::lower_bound(lengths_, length) - lengths_.begin();
}

namespace {

// The first one has the longest samples.
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
