#include "frontend/base/cancellation.h"

namespace onnxtrain {
namespace {

std::atomic<const std::atomic<bool>*> cancel_flag{nullptr};
std::atomic<int> preparing{0};

}  // namespace

void SetCancelFlag(const std::atomic<bool>* flag) { cancel_flag = flag; }

absl::Status CheckCancelled() {
  const std::atomic<bool>* flag = cancel_flag.load(std::memory_order_acquire);
  const bool cancelled = flag != nullptr && flag->load(std::memory_order_relaxed);
  return cancelled ? absl::CancelledError("stopped by a signal") : absl::OkStatus();
}

PreparingScope::PreparingScope() { ++preparing; }
PreparingScope::~PreparingScope() { --preparing; }

bool IsPreparing() { return preparing > 0; }

}  // namespace onnxtrain
