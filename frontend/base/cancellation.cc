#include "frontend/base/cancellation.h"

#include <utility>

namespace onnxtrain {
namespace {

std::atomic<const std::atomic<bool>*> cancel_flag{nullptr};
thread_local const std::atomic<bool>* thread_flag = nullptr;
std::atomic<int> preparing{0};

}  // namespace

void SetCancelFlag(const std::atomic<bool>* flag) { cancel_flag = flag; }

CancelScope::CancelScope(const std::atomic<bool>* flag) : outer_(std::exchange(thread_flag, flag)) {}
CancelScope::~CancelScope() { thread_flag = outer_; }

absl::Status CheckCancelled() {
  if (thread_flag != nullptr && thread_flag->load(std::memory_order_relaxed)) return absl::CancelledError("cancelled");
  const std::atomic<bool>* flag = cancel_flag.load(std::memory_order_acquire);
  const bool cancelled = flag != nullptr && flag->load(std::memory_order_relaxed);
  return cancelled ? absl::CancelledError("stopped by a signal") : absl::OkStatus();
}

PreparingScope::PreparingScope() { ++preparing; }
PreparingScope::~PreparingScope() { --preparing; }

bool IsPreparing() { return preparing > 0; }

}  // namespace onnxtrain
