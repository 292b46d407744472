// Cuts a global batch into micro-batches, and these into the shares of several ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/global_batch.h"

namespace onnxtrain {

// Returns the samples of a batch; fails where there are none, or where `fixed_batch` is above 0 and does not divide
// them.
absl::StatusOr<int64_t> CountSamples(const GlobalBatch& global_batch, int64_t fixed_batch);

// Samples [begin, begin + count) of a part, which are at `place` in the global batch. A rank may have a piece of
// micro-batch `number`, behind the first `skipped` of its `whole` samples.
struct MicroBatch {
  const GlobalBatch* part;
  int64_t begin, count, place, number, skipped = 0, whole = count;

  double fraction() const { return static_cast<double>(count) / static_cast<double>(whole); }
};

// Samples of a micro-batch of this part.
using MicroSize = std::function<int64_t(const GlobalBatch& part)>;

// Replaces *micros with those of the batch, in the order of its samples. `powers_of_two`: what is left of a part is cut
// into powers of two, which need few programs where parts are of all sizes.
void CutMicroBatches(const GlobalBatch& global_batch, const MicroSize& size, bool powers_of_two,
                     std::vector<MicroBatch>* micros);

// Samples [begin, end) of a global batch.
struct SampleRange {
  int64_t begin = 0, end = 0;
};

// Returns the share of a rank: contiguous, in the order of the ranks, in whole multiples of `unit`, which divides the
// samples. Empty where there are more ranks than units.
SampleRange ShareOfRank(int64_t samples, int64_t unit, int rank, int size);

// Returns the samples of the rank that has most of them.
int64_t LargestShare(int64_t samples, int64_t unit, int size);

// Returns how many micro-batches have samples in the range.
int64_t CountMicros(const SampleRange& share, const std::vector<MicroBatch>& micros);

// Keeps what lies in the range.
void KeepShare(const SampleRange& share, std::vector<MicroBatch>* micros);

}  // namespace onnxtrain
