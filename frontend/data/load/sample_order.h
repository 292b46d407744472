// Batches by tokens: as many samples of similar length as a budget of tokens holds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Returns a permutation of 0…n-1, the identity without shuffle. Fisher–Yates from the last position down, driven by
// Philox4x32-10 with key (seed low, seed high ⊕ 0x53485546) and counter (block low, block high, epoch low, epoch high).
// A block yields two 64-bit words, low half first; bounded draws use Lemire's unbiased multiply-and-reject
// (arXiv:1805.10941).
std::vector<int64_t> EpochOrder(int64_t n, uint64_t seed, int64_t epoch, bool shuffle);

// Reorders an order so that batches hold samples of similar length: cuts it into chunks of many batches, sorts each by
// length, the longest first, and shuffles the batches, with 0x4c454e47 in place of 0x53485546. The batch with the
// longest sample comes first, so that too little memory shows at once; a short batch stays the last one.
void GroupByLength(int64_t batch_size, const std::function<int64_t(int64_t)>& length, uint64_t seed, int64_t epoch,
                   std::vector<int64_t>* order);

// A permutation of the batches 0…n-1 of an epoch: that of GroupByLength.
std::vector<int64_t> BatchOrder(int64_t n, uint64_t seed, int64_t epoch);

// The length that batches are padded to: a multiple of 8, of 16 above 128, of 32 above 256, …: programs are compiled
// for few of them, and at most an eighth is padding. At most `longest`.
int64_t RoundUpLength(int64_t length, int64_t longest);

// How many samples a batch has, by the length that they are padded to.
struct TokenBudget {
  int64_t tokens = 0;        // of a micro-batch: samples × padded length; 0: batches are counted in samples
  int64_t accumulation = 1;  // micro-batches of a batch
  int64_t max_samples = 0;   // of a micro-batch; 0: as many as the tokens allow

  bool on() const { return tokens > 0; }
  // At least one.
  int64_t MicroSamples(int64_t length) const;
  int64_t Samples(int64_t length) const { return accumulation * MicroSamples(length); }
};

// Cuts the epochs of a data set into batches by a budget. Samples are sorted into buckets by their padded length, and
// each bucket is cut into batches of the size that the budget allows it; the rest joins the next longer bucket. So the
// number of batches is the same in every epoch, all batches of a length have one size, and only the last batch of an
// epoch may be smaller.
class TokenBatches {
 public:
  // `longest`: the length of the longest sample that a batch may have. `data` must outlive it.
  TokenBatches(const Dataset& data, const TokenBudget& budget, int64_t longest, bool drop_last);

  // Samples [begin, end) of the order of an epoch, padded to `length`.
  struct Cut {
    int64_t begin, end, length;
  };
  int64_t size() const { return batches_; }               // batches of an epoch
  int64_t most_samples() const { return most_samples_; }  // of a batch
  int64_t most_tokens() const { return most_tokens_; }    // samples × padded length of a batch

  // Reorders the samples of an epoch and returns its batches. With `shuffle` they are in random order, a function of
  // (seed, epoch): the first one has the longest samples, so that too little memory shows at once, and the smaller one
  // is the last.
  std::vector<Cut> CutEpoch(uint64_t seed, int64_t epoch, bool shuffle, std::vector<int64_t>* order) const;

 private:
  size_t BucketOf(int64_t sample) const;

  const Dataset& data_;
  TokenBudget budget_;
  int64_t longest_;
  bool drop_last_;
  std::vector<int64_t> lengths_;  // of the buckets, ascending
  int64_t batches_ = 0, most_samples_ = 0, most_tokens_ = 0;
};

}  // namespace onnxtrain
