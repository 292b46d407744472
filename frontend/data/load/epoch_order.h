// The order of samples: a pure function of (seed, epoch), independent of worker count, micro-batch and world size.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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

}  // namespace onnxtrain
