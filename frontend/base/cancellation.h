// Ends long preparations early: import, passes, planning, compilation. The library neither handles signals nor starts
// timers: a program lets its signal handler set a flag, and the loops of the library look at it.
#pragma once

#include <atomic>

#include "absl/status/status.h"

namespace onnxtrain {

// Sets the flag that asks all preparations of the process to end; null: none. It must outlive them.
void SetCancelFlag(const std::atomic<bool>* flag);

// While one exists, its flag ends what the thread that made it does, besides the flag of the process. For programs that
// run several trainings and end one of them. Scopes of a thread nest.
class CancelScope {
 public:
  // `flag` must outlive it.
  explicit CancelScope(const std::atomic<bool>* flag);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

// Returns a CancelledError once a flag is set that counts for the calling thread.
absl::Status CheckCancelled();

// While one exists, a model is prepared: nothing is lost if the process ends.
class PreparingScope {
 public:
  PreparingScope();
  ~PreparingScope();
  PreparingScope(const PreparingScope&) = delete;
  PreparingScope& operator=(const PreparingScope&) = delete;
};

// Returns whether a PreparingScope exists. Async-signal-safe.
bool IsPreparing();

}  // namespace onnxtrain
