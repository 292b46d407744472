// The order of samples in an epoch, and its division into batches by number of samples or of tokens.
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

// Reorders `order` so that batches hold samples of similar length: cuts it into chunks of many batches, sorts each
// chunk by length, longest first, and shuffles the batches, with the constant 0x4c454e47 in place of 0x53485546. The
// batch with the longest sample comes first, so that a lack of memory shows at once; a short batch stays last.
void GroupByLength(int64_t batch_size, const std::function<int64_t(int64_t)>& length, uint64_t seed, int64_t epoch,
                   std::vector<int64_t>* order);

// Returns the permutation of the batches 0…n-1 of an epoch that GroupByLength uses.
std::vector<int64_t> BatchOrder(int64_t n, uint64_t seed, int64_t epoch);

// Returns the length that batches are padded to, at most `longest`: a multiple of 8, of 16 above 128, of 32 above 256,
// …, so that few programs are compiled and at most an eighth is padding.
int64_t RoundUpLength(int64_t length, int64_t longest);

// Limits the samples of a batch by their padded length.
struct TokenBudget {
  int64_t tokens = 0;        // per micro-batch: samples × padded length; 0: off
  int64_t accumulation = 1;  // micro-batches per batch
  int64_t max_samples = 0;   // per micro-batch; 0: unlimited

  bool on() const { return tokens > 0; }
  // Returns the samples of a micro-batch, at least one.
  int64_t MicroSamples(int64_t length) const;
  int64_t Samples(int64_t length) const { return accumulation * MicroSamples(length); }
};

// Divides epochs into batches by a token budget. Sorts samples into buckets by padded length and cuts each bucket into
// batches of the size that the budget allows for it; the remainder joins the next longer bucket. So every epoch has the
// same number of batches, all batches of a length have the same size, and only the last batch may be smaller.
class TokenBatches {
 public:
  // `longest`: maximum length of a sample in a batch. `data` must outlive this object.
  TokenBatches(const Dataset& data, const TokenBudget& budget, int64_t longest, bool drop_last);

  // Samples [begin, end) of the order of an epoch, padded to `length`.
  struct Cut {
    int64_t begin, end, length;
  };
  int64_t size() const { return batches_; }             // batches per epoch
  int64_t max_samples() const { return max_samples_; }  // maximum of all batches
  int64_t max_tokens() const { return max_tokens_; }    // maximum of samples × padded length

  // Reorders the samples of an epoch and returns its batches. With `shuffle` the batches are in random order, a
  // function of (seed, epoch), except that the batch with the longest samples is first, so that a lack of memory shows
  // at once, and a smaller batch is last.
  std::vector<Cut> CutEpoch(uint64_t seed, int64_t epoch, bool shuffle, std::vector<int64_t>* order) const;

 private:
  size_t BucketOf(int64_t sample) const;

  const Dataset& data_;
  TokenBudget budget_;
  int64_t longest_;
  bool drop_last_;
  std::vector<int64_t> lengths_;  // padded lengths of the buckets, ascending
  int64_t batches_ = 0, max_samples_ = 0, max_tokens_ = 0;
};

}  // namespace onnxtrain
