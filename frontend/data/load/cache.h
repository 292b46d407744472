// Caches of decoded samples in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// A number of bytes that several caches share. Thread-safe.
class CacheBudget {
 public:
  explicit CacheBudget(int64_t bytes) : bytes_(bytes), left_(bytes) {}
  int64_t bytes() const { return bytes_; }
  // Permanently takes `bytes` from the budget and returns true; returns false and takes none if fewer are left.
  bool Take(int64_t bytes) {
    if (left_.fetch_sub(bytes) >= bytes) return true;
    left_.fetch_add(bytes);
    return false;
  }

 private:
  int64_t bytes_;
  std::atomic<int64_t> left_;
};

// Holds at most one value per sample, which stays until the cache is destroyed. Thread-safe.
template <typename T>
class SampleCache {
 public:
  explicit SampleCache(int64_t samples) : values_(samples) {}
  SampleCache(const SampleCache&) = delete;
  SampleCache& operator=(const SampleCache&) = delete;
  ~SampleCache() {
    for (const std::atomic<const T*>& value : values_) delete value.load();
  }

  const T* Find(int64_t sample) const { return values_[sample].load(std::memory_order_acquire); }  // null: not cached
  // Stores the value unless there is one already.
  void Keep(int64_t sample, std::unique_ptr<const T> value) {
    const T* none = nullptr;
    // The atomic pointer owns the value from now on.
    if (values_[sample].compare_exchange_strong(none, value.get(), std::memory_order_acq_rel))
      static_cast<void>(value.release());
  }

 private:
  std::vector<std::atomic<const T*>> values_;
};

// Returns a view that caches the values of `columns` at their first read, while the budget lasts. Does not cache
// columns of single values or variable length, nor values that depend on the pass (Column::augmented): their sources
// cache the decoded picture instead (ImageOptions::cache). Returns null if no column is worth caching, as for data in
// memory.
std::shared_ptr<const Dataset> CacheInRam(std::shared_ptr<const Dataset> source, const std::vector<int>& columns,
                                          std::shared_ptr<CacheBudget> budget);

}  // namespace onnxtrain
