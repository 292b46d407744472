// Ends long preparations early: import, passes, planning, compilation. The library neither handles signals nor starts
// timers: a program lets its signal handler set a flag, and the loops of the library look at it.
#pragma once

#include <atomic>

#include "absl/status/status.h"

namespace onnxtrain {

// Sets the flag that cancels every preparation in this process; null removes it. The flag must outlive its use.
void SetCancelFlag(const std::atomic<bool>* flag);

// While a scope exists, its flag cancels the work of the thread that created the scope, in addition to the flag of the
// process. Lets a program that runs several trainings end one of them. The scopes of a thread nest.
class CancelScope {
 public:
  // `flag` must outlive the scope.
  explicit CancelScope(const std::atomic<bool>* flag);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

// Returns a CancelledError if the flag of the process or of a scope of the calling thread is set.
absl::Status CheckCancelled();

// Marks the preparation of a model, during which the process may exit without losing results. Scopes of several threads
// may overlap.
class PreparingScope {
 public:
  PreparingScope();
  ~PreparingScope();
  PreparingScope(const PreparingScope&) = delete;
  PreparingScope& operator=(const PreparingScope&) = delete;
};

// Returns true if any PreparingScope exists. Async-signal-safe.
bool IsPreparing();

}  // namespace onnxtrain
