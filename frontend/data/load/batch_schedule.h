// Which samples the batches of a loader hold: a pure function of its options, so it does not matter who makes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "frontend/data/load/loader.h"
#include "frontend/data/load/token_batches.h"

namespace onnxtrain {

// The epoch and the place of batch number t.
class BatchSchedule {
 public:
  // `tokens`: how epochs are cut; null: into equal batches.
  BatchSchedule(int64_t samples, const LoaderOptions& options, const TokenBatches* tokens);

  struct Place {
    int64_t epoch, batch, begin, end;  // batch: within the epoch; [begin, end): its samples, where batches are equal
  };
  Place At(int64_t t) const;
  bool Has(int64_t t) const;
  bool empty() const { return each_ == 0; }
  bool begins_within_epoch() const { return first_ >= 0; }

 private:
  int64_t CountBatches(int64_t samples) const;

  int64_t samples_;
  LoaderOptions options_;
  int64_t first_, each_;  // batches of the first epoch, from where it begins, and of the others
};

// The order of an epoch, and its batches where they are not equal.
struct Epoch {
  int64_t number = 0;
  std::vector<int64_t> order;
  std::vector<TokenBatches::Cut> cuts;

  TokenBatches::Cut At(const BatchSchedule::Place& place) const {
    return cuts.empty() ? TokenBatches::Cut{place.begin, place.end, 0} : cuts[place.batch];
  }
};

// The epochs that workers are in: two at most matter at a time. Any thread may ask.
class Epochs {
 public:
  // Data and tokens, which may be null, must outlive it.
  Epochs(const Dataset& data, const LoaderOptions& options, const TokenBatches* tokens)
      : data_(data), options_(options), tokens_(tokens) {}

  std::shared_ptr<const Epoch> Get(int64_t number);

 private:
  Epoch Make(int64_t number) const;

  const Dataset& data_;
  LoaderOptions options_;
  const TokenBatches* tokens_;
  std::mutex mutex_;
  std::shared_ptr<const Epoch> epochs_[2];
};

}  // namespace onnxtrain
