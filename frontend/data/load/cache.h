// Keeps decoded samples in memory.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "frontend/data/load/cache_budget.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Values of samples that stay in memory.

// Keeps at most one value for each sample, for ever. Any thread may call.
template <typename T>
class SampleCache {
 public:
  explicit SampleCache(int64_t samples) : values_(samples) {}
  SampleCache(const SampleCache&) = delete;
  SampleCache& operator=(const SampleCache&) = delete;
  ~SampleCache() {
    for (const std::atomic<const T*>& value : values_) delete value.load();
  }

  const T* Find(int64_t sample) const { return values_[sample].load(std::memory_order_acquire); }  // null: none
  // Keeps the value unless there is one already.
  void Keep(int64_t sample, std::unique_ptr<const T> value) {
    const T* none = nullptr;
    // The pointer is kept here from now on.
    if (values_[sample].compare_exchange_strong(none, value.get(), std::memory_order_acq_rel))
      static_cast<void>(value.release());
  }

 private:
  std::vector<std::atomic<const T*>> values_;
};

// Keeps the samples of files in memory.

// Returns a view that keeps the values of `columns` from their first read on, as far as the budget lasts. Keeps no
// single values, no values of their own lengths, and none that depend on the pass (Column::augmented), which sources
// keep in a form of their own (ImageOptions::cache). Returns null where nothing of it is worth keeping: all is in
// memory already.
std::shared_ptr<const Dataset> CacheInRam(std::shared_ptr<const Dataset> source, const std::vector<int>& columns,
                                          std::shared_ptr<CacheBudget> budget);

}  // namespace onnxtrain
