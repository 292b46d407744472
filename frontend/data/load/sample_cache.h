// Values of samples that stay in memory.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

namespace onnxtrain {

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

}  // namespace onnxtrain
