// The memory that caches of samples share.
#pragma once

#include <atomic>
#include <cstdint>

namespace onnxtrain {

// Any thread may call.
class CacheBudget {
 public:
  explicit CacheBudget(int64_t bytes) : bytes_(bytes), left_(bytes) {}
  int64_t bytes() const { return bytes_; }
  // Takes that many bytes for ever; false, and takes none, where fewer are left.
  bool Take(int64_t bytes) {
    if (left_.fetch_sub(bytes) >= bytes) return true;
    left_.fetch_add(bytes);
    return false;
  }

 private:
  int64_t bytes_;
  std::atomic<int64_t> left_;
};

}  // namespace onnxtrain
