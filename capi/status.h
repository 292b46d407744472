// Handles and statuses of the C interface, and the guard that converts errors and exceptions to statuses.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/status/status.h"
#include "capi/onnxtrain.h"

namespace onnxtrain::capi {

// Returns a number that the process never used for a handle, so that a released handle is always recognized. It is
// odd, unlike the addresses that a program may pass by mistake.
inline uintptr_t NextHandle() {
  static std::atomic<uintptr_t> last{0};
  return (last.fetch_add(1, std::memory_order_relaxed) + 1) << 4 | 1;
}

// Maps handles of one kind to objects, which they own together with the pointers that Find returned. Thread-safe.
template <typename Object>
class HandleTable {
 public:
  uintptr_t Add(std::shared_ptr<Object> object) {
    const uintptr_t handle = NextHandle();
    const std::scoped_lock lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  // Returns null for an unknown handle.
  std::shared_ptr<Object> Find(uintptr_t handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  void Remove(uintptr_t handle) {
    std::shared_ptr<Object> last;  // destroyed after unlocking, since that may take long
    const std::scoped_lock lock(mutex_);
    if (const auto found = objects_.find(handle); found != objects_.end()) {
      last = std::move(found->second);
      objects_.erase(found);
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects_;
};

// Returns null for OK.
OnnxtrainStatus* MakeStatus(const absl::Status& status) noexcept;
// Returns a status that MakeStatus converts to ONNXTRAIN_CALLBACK.
absl::Status CallbackFailed(const char* callback, int result);
// Returns a static status, for lack of memory to allocate one.
OnnxtrainStatus* OutOfMemory() noexcept;

// Calls f(), which returns an absl::Status, and returns its status, or that of the exception it throws.
template <typename F>
OnnxtrainStatus* Guard(F&& f) noexcept {
  try {
    return MakeStatus(f());
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& e) {
    return MakeStatus(absl::InternalError(e.what()));
  } catch (...) {
    return MakeStatus(absl::InternalError("an exception of unknown type"));
  }
}

OnnxtrainCode GetCode(const OnnxtrainStatus* status) noexcept;
const char* GetMessage(const OnnxtrainStatus* status) noexcept;
void Release(OnnxtrainStatus* status) noexcept;

}  // namespace onnxtrain::capi
